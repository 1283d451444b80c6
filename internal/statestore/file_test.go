package statestore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newFolder(t *testing.T) storage {
	folder := filepath.Join(t.TempDir(), "states")
	s := folderStore{path: folder}
	return storage{
		url:     "file:" + folder,
		forget:  func(t *testing.T) { require.NoError(t, os.RemoveAll(folder)) },
		corrupt: func(t *testing.T, key string) { flip(t, s.file(key), 8) },
	}
}

// flip changes one byte of a file.
func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	require.NoError(t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b[:], at)
	require.NoError(t, err)
}

// fileOf is the file of a key in the folder of a storage.
func (s *storage) fileOf(key string) string {
	folder := folderStore{path: strings.TrimPrefix(s.url, "file:")}
	return folder.file(key)
}

// TestDamagedFiles: a file that a power failure left is not taken for a state, and the
// sequence can begin anew and be saved.
func TestDamagedFiles(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"empty":             func(path string) error { return os.Truncate(path, 0) },
		"half a head":       func(path string) error { return os.Truncate(path, 20) },
		"half a key":        func(path string) error { return os.Truncate(path, fileHeadSize+2) },
		"half a value":      func(path string) error { return os.Truncate(path, 130) },
		"no value":          func(path string) error { return os.Truncate(path, 128) },
		"another file":      func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("x", 100)), 0o600) },
		"a long key":        func(path string) error { return overwrite(path, 32, "\xff\xff\x00\x00") },
		"a very long key":   func(path string) error { return overwrite(path, 32, "\xff\xff\xff\xff") },
		"another key":       func(path string) error { return overwrite(path, fileHeadSize, "x") },
		"a value too large": func(path string) error { return os.Truncate(path, 5000) },
	} {
		t.Run(name, func(t *testing.T) {
			where := newFolder(t)
			s := where.open(t)
			save(t, s, key, begin(t, s, key), strings.Repeat("right", 10))
			require.NoError(t, damage(where.fileOf(key)))
			_, value, err := s.Take(t.Context(), key, AnyStep, minute)
			require.ErrorContains(t, err, "damaged")
			require.ErrorContains(t, err, where.fileOf(key))
			require.Nil(t, value)
			_, err = s.Get(t.Context(), key)
			require.ErrorIs(t, err, ErrDamaged)
			keys(t, s, "") // skips it, or lists it if only the value is damaged
			epoch := begin(t, s, key)
			require.Empty(t, saved(t, s, key))
			require.NoError(t, damage(where.fileOf(key)))
			save(t, s, key, epoch, "again")
			require.Equal(t, "again", saved(t, s, key))
		})
	}
}

func overwrite(path string, at int64, with string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(with), at)
	return errors.Join(err, f.Close())
}

func TestFileOfALaterVersion(t *testing.T) {
	where := newFolder(t)
	s := where.open(t)
	epoch := begin(t, s, key)
	require.NoError(t, overwrite(where.fileOf(key), 4, "\x02"))
	_, err := s.Begin(t.Context(), key, 0, minute)
	require.ErrorContains(t, err, "format 2: this version reads 1")
	require.ErrorContains(t, s.Save(t.Context(), key, epoch, nil, minute), "format 2")
	require.ErrorContains(t, listError(s.Keys(t.Context(), "")), "format 2")
}

func TestSweep(t *testing.T) {
	where := newFolder(t)
	s := where.open(t).(*folderStore)
	long, short, never := Key("m", "long"), Key("m", "short"), Key("m", "never")
	for key, ttl := range map[string]time.Duration{long: minute, short: time.Millisecond, never: 0} {
		_, err := s.Begin(t.Context(), key, 0, ttl)
		require.NoError(t, err)
	}
	young, old := filepath.Join(filepath.Dir(s.file(long)), "1.tmp"), filepath.Join(filepath.Dir(s.file(long)), "2.tmp")
	require.NoError(t, os.WriteFile(young, nil, 0o600))
	require.NoError(t, os.WriteFile(old, nil, 0o600))
	ago := time.Now().Add(-2 * unfinished)
	require.NoError(t, os.Chtimes(old, ago, ago))
	time.Sleep(5 * time.Millisecond)
	for shard := range shards {
		s.sweep(t.Context(), shard)
	}
	require.NoFileExists(t, s.file(short))
	require.NoFileExists(t, old)
	require.FileExists(t, young)
	require.FileExists(t, s.file(long))
	require.FileExists(t, s.file(never))
}

// TestLockedByAStoppedServer: calls end with their context, and other keys are served.
func TestLockedByAStoppedServer(t *testing.T) {
	where := newFolder(t)
	s := where.open(t)
	epoch := begin(t, s, key)
	lock, err := lockFolder(t.Context(), filepath.Dir(where.fileOf(key)))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Save(ctx, key, epoch, []byte("x"), minute), context.DeadlineExceeded)
	begin(t, s, Key("model/1", "8"))
	lock.Close()
	save(t, s, key, epoch, "x")
	temps, err := filepath.Glob(filepath.Join(filepath.Dir(where.fileOf(key)), "*"+tempSuffix))
	require.NoError(t, err)
	require.Empty(t, temps, "nothing of the failed save is left")
}

func TestFolderThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	where := storage{url: "file:" + file}
	s := where.open(t)
	var permanent *PermanentError
	require.ErrorAs(t, s.Check(t.Context()), &permanent)
	require.ErrorContains(t, permanent, "not a directory")
	where = storage{url: "file:/proc/states"}
	require.Error(t, where.open(t).Check(t.Context()))
}

// TestFullDisk needs the right to mount a small file system.
func TestFullDisk(t *testing.T) {
	folder := t.TempDir()
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("a small file system cannot be mounted: ", err)
	}
	defer func() { require.NoError(t, syscall.Unmount(folder, syscall.MNT_DETACH)) }()
	where := storage{url: "file:" + folder}
	s := where.open(t)
	epoch := begin(t, s, key)
	save(t, s, key, epoch, "right")
	err := s.Save(t.Context(), key, epoch, make([]byte, 1<<20), minute)
	require.ErrorIs(t, err, syscall.ENOSPC)
	var permanent *PermanentError
	require.False(t, errors.As(err, &permanent))
	require.Equal(t, "right", saved(t, s, key), "the last value stays")
	save(t, s, key, epoch, "later")
	require.Equal(t, "later", saved(t, s, key))
}
