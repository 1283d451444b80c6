package status

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorCodes(t *testing.T) {
	plain := errors.New("injected")
	require.Equal(t, Internal, CodeOf(plain), "it has no code")
	err := Errorf(NotFound, "somewhere: %w", plain)
	require.ErrorIs(t, err, plain)
	require.Equal(t, NotFound, CodeOf(err))
	require.Equal(t, Unavailable, CodeOf(Errorf(Unavailable, "%w", err)), "the outermost counts")
}
