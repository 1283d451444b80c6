package statestore

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// update writes the files of testdata/formats that are missing. What is there was saved by a version that may be in use, so no
// test changes it: a new format gets files of its own.
var update = flag.Bool("update", false, "write the files of testdata/formats that are missing")

// golden returns a file of testdata/formats.
func golden(t *testing.T, name string, written []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", "formats", name)
	if _, err := os.Stat(path); *update && errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, os.WriteFile(path, written, 0o644))
	}
	bytes, err := os.ReadFile(path)
	require.NoError(t, err)
	return bytes
}

var goldenCounters = []uint64{7, 1 << 40}

// TestFormat1 is read by this version and each later one that has to (docs/release.md). As long as it is the format that is
// written, it is also written like that.
func TestFormat1(t *testing.T) {
	var w Writer
	written := sealed(t, &w, testHead, goldenCounters, someTensors()...)
	value := golden(t, "value-1", written)
	record, err := Parse(value)
	require.NoError(t, err)
	require.Equal(t, testHead, record.Head)
	require.Equal(t, goldenCounters, record.Counters)
	require.Len(t, record.Tensors, len(someTensors()))
	for i, got := range record.Tensors {
		require.Equal(t, someTensors()[i], got.Tensor)
		for j, b := range got.Data {
			require.Equal(t, byte(i+j), b, "byte %d of tensor %q", j, got.Name)
		}
	}
	if Format == 1 {
		require.Equal(t, value, written)
	}
}

// TestFileFormat1 is the same for a file of the folder store, with a value of format 1.
func TestFileFormat1(t *testing.T) {
	where := newFolder(t)
	s := where.open(t)
	value := golden(t, "value-1", nil)
	head := fileHead{key: key, epoch: testHead.Epoch, expires: time.Unix(1<<33, 5), size: int64(len(value))}
	written := append(head.bytes(), value...)
	file := golden(t, "file-1", written)
	path := where.fileOf(key)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, file, 0o600))
	require.Equal(t, testHead.Epoch, owner(t, s, key))
	require.Equal(t, map[string]bool{key: true}, keys(t, s, ""))
	epoch, got, err := s.Take(t.Context(), key, AnyStep, 0)
	require.NoError(t, err)
	require.Equal(t, value, got)
	require.Greater(t, epoch, testHead.Epoch)
	if fileVersion == 1 {
		require.Equal(t, file, written)
	}
}
