package statestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// An entry is the file of a key while its folder is locked.
type entry struct {
	path   string
	file   *os.File // nil if there is none, or one that has expired or is damaged
	head   fileHead // zero if there is no file
	damage error    // what is wrong with the file
}

// open opens the file and reads its head.
func (e *entry) open() error {
	f, err := os.OpenFile(e.path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	head, err := readFileHead(f)
	switch {
	case errors.Is(err, errDamaged):
		e.damage = fmt.Errorf("%s: %w; it is replaced when the sequence begins anew or is saved", e.path, err)
	case err != nil:
		f.Close()
		return fmt.Errorf("%s: %w", e.path, err)
	case head.expired(time.Now()):
	default:
		e.file, e.head = f, head
		return nil
	}
	f.Close()
	return nil
}

func (e *entry) close() {
	if e.file != nil {
		e.file.Close()
	}
}

// replace replaces the file by one with another head and value.
func (e *entry) replace(head fileHead, value []byte) error {
	temp, err := writeTemp(filepath.Dir(e.path), head, value)
	if err != nil {
		return err
	}
	if err = os.Rename(temp, e.path); err != nil {
		_ = os.Remove(temp)
	}
	return err
}

// writeTemp writes a file with a head and a value, which has the head's size, next to
// where it is to be. The folder is made if it is missing. The caller renames the file.
func writeTemp(folder string, head fileHead, value []byte) (path string, err error) {
	f, err := os.CreateTemp(folder, "*"+tempSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(folder, 0o700); err == nil {
			f, err = os.CreateTemp(folder, "*"+tempSuffix)
		}
	}
	if err != nil {
		return "", err
	}
	head.size = int64(len(value))
	if _, err = f.Write(head.bytes()); err == nil && len(value) > 0 {
		_, err = f.Write(value)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name())
	}
	return f.Name(), err
}

// lockFolder locks a folder, which is made if it is missing, until the file that is
// returned is closed. It waits as long as ctx allows.
func lockFolder(ctx context.Context, folder string) (*os.File, error) {
	path := filepath.Join(folder, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(folder, 0o700); err == nil {
			f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		}
	}
	if err != nil {
		return nil, err
	}
	// It is tried again and again, as a call that waits would not end with ctx.
	for wait := 20 * time.Microsecond; ; wait = min(2*wait, 2*time.Millisecond) {
		if err = ctx.Err(); err == nil {
			err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		}
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}
