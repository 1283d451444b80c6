package statestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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

// beforeSuffix ends the name of the file with the value before. Its epoch is not used: that of the key is in the file without
// the suffix. Its expiry is used after End, when the file without the suffix has no value.
const beforeSuffix = ".before"

func (e *entry) before() string { return e.path + beforeSuffix }

// isExtra reports whether a file is that of the value before, next to the file of its key.
func isExtra(path string) bool {
	main, isBefore := strings.CutSuffix(path, beforeSuffix)
	if !isBefore {
		return false
	}
	_, err := os.Lstat(main)
	return err == nil
}

// open opens the file and reads its head. A server that was killed while it saved may have left only the value before.
func (e *entry) open() error {
	err := e.openAs(e.path)
	if errors.Is(err, fs.ErrNotExist) && os.Rename(e.before(), e.path) == nil {
		err = e.openAs(e.path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, ErrDamaged):
		e.damage = fmt.Errorf("%w; it is replaced when the sequence begins anew or is saved", err)
		return nil
	case err == nil && e.head.expired(time.Now()):
		e.close()
		e.file, e.head = nil, fileHead{}
	}
	return err
}

// openAs opens a file and reads its head, also if it has expired.
func (e *entry) openAs(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	head, err := readFileHead(f)
	if err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", path, err)
	}
	e.file, e.head = f, head
	return nil
}

// older returns the file with the value before and the number of its steps; nil if there is none that can be used. The
// caller closes it.
func (e *entry) older() (older *entry, step uint64, err error) {
	older = &entry{path: e.before()}
	if err = older.openAs(older.path); err == nil {
		if step, err = older.head.readStep(older.file); err != nil {
			older.close()
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrDamaged):
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	}
	return older, step, nil
}

// eachValue calls a function with the files that have a value, the newest first.
func (e *entry) eachValue(f func(head *fileHead, file *os.File) error) error {
	if e.head.size == 0 {
		return nil
	}
	if err := f(&e.head, e.file); err != nil {
		return err
	}
	older, _, err := e.older()
	if older == nil {
		return err
	}
	defer older.close()
	return f(&older.head, older.file)
}

// keep makes room for a value with that many steps: the value that is there becomes the one before if it has fewer. Until the
// caller has renamed the new file, only the file before is there; see open.
func (e *entry) keep(step uint64) error {
	if e.file != nil && e.head.size > 0 {
		there, err := e.head.readStep(e.file)
		if err == nil && there < step {
			return os.Rename(e.path, e.before())
		}
		if older, before, err := e.older(); err != nil {
			return err
		} else if older != nil {
			older.close()
			if before < step {
				return nil
			}
		}
	}
	return removeIfThere(e.before())
}

// leftByEnd reports whether the sequence has ended, and its value before is for someone who wants at most that many steps.
func (e *entry) leftByEnd(atMost uint64) (bool, error) {
	older, step, err := e.older()
	if older == nil {
		return false, err
	}
	defer older.close()
	return atMost < e.head.ended && step <= atMost && !older.head.expired(time.Now()), nil
}

// goBack has the sequence go on from the value before, if that has at most that many steps and the newest has more, or if
// the sequence has ended with more steps and not long ago, or if the newest is damaged. head is the new one. A server that is
// killed meanwhile leaves what was there.
func (e *entry) goBack(head fileHead, atMost uint64) error {
	damage := e.damage
	if damage == nil && e.head.size == 0 && atMost >= e.head.ended {
		return removeIfThere(e.before())
	}
	if e.head.size > 0 {
		step, err := e.head.readStep(e.file)
		if errors.Is(err, ErrDamaged) {
			damage = err
		} else if err != nil || step <= atMost {
			return err
		}
	}
	older, step, err := e.older()
	if err != nil {
		return err
	}
	if older == nil {
		return damage
	}
	over := e.head.size == 0 && older.head.expired(time.Now())
	if over || damage == nil && step > atMost {
		older.close()
		if e.head.size == 0 && damage == nil {
			return removeIfThere(e.before())
		}
		return damage
	}
	head.size, head.epoch = older.head.size, max(head.epoch, nextEpoch(older.head.epoch))
	if _, err = older.file.WriteAt(head.bytes(), 0); err == nil {
		err = os.Rename(older.path, e.path)
	}
	if err != nil {
		older.close()
		return err
	}
	e.close()
	e.file, e.head = older.file, head
	return nil
}

func (e *entry) close() {
	if e.file != nil {
		e.file.Close()
	}
}

// end replaces the file by one with another head and no value, and keeps the newest value with fewer steps than the
// sequence has ended with, for a while.
func (e *entry) end(head fileHead) error {
	if err := e.keep(head.ended); err != nil {
		return err
	}
	older, _, err := e.older()
	if err != nil {
		return err
	}
	if older == nil { // or it is damaged
		return e.clear(head)
	}
	defer older.close()
	kept := older.head
	kept.expires = expiry(endKept)
	if _, err := older.file.WriteAt(kept.bytes(), 0); err != nil {
		return err
	}
	return e.replace(head)
}

// clear is replace without a value before.
func (e *entry) clear(head fileHead) error {
	if err := removeIfThere(e.before()); err != nil { // first: it must not be taken for what is saved
		return err
	}
	return e.replace(head)
}

// replace replaces the file by one with another head and no value.
func (e *entry) replace(head fileHead) error {
	temp, err := writeTemp(filepath.Dir(e.path), head, nil)
	if err != nil {
		return err
	}
	if err = os.Rename(temp, e.path); err != nil {
		_ = os.Remove(temp)
	}
	return err
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
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
