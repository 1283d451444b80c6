package glibc

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOlder(t *testing.T) {
	require.True(t, Older("2.9", "2.34"))
	require.True(t, Older("", "2.2.5"))
	require.False(t, Older("2.34", "2.34"))
	require.Equal(t, "2.34", later("2.34", "GLIBC_2.9"))
	require.Equal(t, "2.34", later("2.34", "GLIBC_PRIVATE"))
	require.Equal(t, "2.34", later("2.34", "GLIBCXX_3.4.22"))
	require.Equal(t, "2.36", later("2.34", "GLIBC_2.36"))
}

func TestErrorsNameTheFile(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("text"), 0o600))
	_, err := Needed(text)
	require.ErrorContains(t, err, "read the library "+text)
	_, err = Version(text, "/lib/libc.so.6")
	require.ErrorContains(t, err, "read the C library /lib/libc.so.6")
}
