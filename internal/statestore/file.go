package statestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A folderStore keeps one file for each key, for the servers of one machine. What is in
// it survives the end of a server, however it ends, but not always that of the machine:
// nothing is flushed to the disk, as that would take longer than a step.
//
// A file is replaced as a whole by renaming, or its head is written in place, which one
// call does. So a server that is killed leaves the old file or the new one. What a new value
// replaces is renamed first (see entry.keep): the value before is in a file of its own, next to
// that of the key. Files are in
// 256 folders, by the first byte of their names, each with a file that is locked while a
// file of the folder is looked at and changed. The lock is the kernel's, so it ends with
// its process.
type folderStore struct {
	path string
	end  context.CancelFunc // stops sweeping
	done chan struct{}      // closed when it has stopped
}

func openFolder(path string) *folderStore {
	ctx, end := context.WithCancel(context.Background())
	s := &folderStore{path: path, end: end, done: make(chan struct{})}
	go s.sweepForever(ctx)
	return s
}

func (s *folderStore) Close() {
	s.end()
	<-s.done
}

func (s *folderStore) Begin(ctx context.Context, key string, age, ttl time.Duration) (epoch uint64, err error) {
	began := time.Now().Add(-age)
	err = s.locked(ctx, "begin", key, func(e *entry) error {
		if now := time.Now(); isLater(e.head.epoch, began.UnixMicro(), now.UnixMicro()) {
			return &FencedError{Epoch: uint64(began.UnixMicro()), Owner: e.head.epoch}
		}
		epoch = nextEpoch(e.head.epoch)
		return e.clear(fileHead{key: key, epoch: epoch, expires: expiry(ttl)})
	})
	return epoch, err
}

func (s *folderStore) Take(ctx context.Context, key string, atMost uint64, ttl time.Duration) (epoch uint64, value []byte, err error) {
	return s.take(ctx, key, atMost, ttl, false)
}

func (s *folderStore) TakeSaved(ctx context.Context, key string, atMost uint64, ttl time.Duration) (epoch uint64, value []byte, err error) {
	return s.take(ctx, key, atMost, ttl, true)
}

func (s *folderStore) take(ctx context.Context, key string, atMost uint64, ttl time.Duration, onlySaved bool) (epoch uint64, value []byte, err error) {
	err = s.locked(ctx, "take over", key, func(e *entry) error {
		if onlySaved && e.damage == nil && e.head.size == 0 {
			if left, err := e.leftByEnd(atMost); !left {
				return err
			}
		}
		head := fileHead{key: key, epoch: nextEpoch(e.head.epoch), expires: expiry(ttl)}
		if e.file == nil && e.damage == nil {
			epoch = head.epoch
			return e.clear(head)
		}
		if err := e.goBack(head, atMost); err != nil {
			return err
		}
		head.size, head.epoch = e.head.size, max(head.epoch, e.head.epoch)
		if value, err = e.head.readValue(e.file); err != nil {
			return err
		}
		epoch = head.epoch
		_, err := e.file.WriteAt(head.bytes(), 0)
		return err
	})
	return epoch, value, err
}

func (s *folderStore) Save(ctx context.Context, key string, epoch uint64, value []byte, ttl time.Duration) error {
	// The bytes are written before the lock is taken, which others may wait for.
	temp, err := writeTemp(filepath.Dir(s.file(key)), fileHead{key: key, epoch: epoch, expires: expiry(ttl)}, value)
	if err != nil {
		return s.explain("save", key, err)
	}
	err = s.locked(ctx, "save", key, func(e *entry) error {
		if e.head.epoch > epoch {
			return &FencedError{Epoch: epoch, Owner: e.head.epoch}
		}
		if err := e.keep(stepOf(value)); err != nil {
			return err
		}
		return os.Rename(temp, e.path)
	})
	if err != nil {
		_ = os.Remove(temp)
	}
	return err
}

func (s *folderStore) Drop(ctx context.Context, key string, epoch uint64) error {
	return s.End(ctx, key, epoch, 0)
}

func (s *folderStore) End(ctx context.Context, key string, epoch, steps uint64) error {
	return s.locked(ctx, "drop", key, func(e *entry) error {
		if e.head.epoch > epoch {
			return &FencedError{Epoch: epoch, Owner: e.head.epoch}
		}
		if steps > 0 && e.head.ended == steps { // this is done again
			return nil
		}
		expires := expiry(dropped)
		if !e.head.expires.IsZero() && e.head.expires.Before(expires) {
			expires = e.head.expires
		}
		return e.end(fileHead{key: key, epoch: epoch, expires: expires, ended: steps})
	})
}

func (s *folderStore) Owner(ctx context.Context, key string) (epoch uint64, steps []uint64, err error) {
	err = s.locked(ctx, "look up the owner of", key, func(e *entry) error {
		epoch = e.head.epoch
		if e.file == nil {
			return e.damage
		}
		return e.eachValue(func(head *fileHead, file *os.File) error {
			step, err := head.readStep(file)
			if err == nil {
				steps = append(steps, step)
			} else if errors.Is(err, ErrDamaged) {
				err = nil
			}
			return err
		})
	})
	return epoch, steps, err
}

func (s *folderStore) Get(ctx context.Context, key string) (values [][]byte, err error) {
	err = s.locked(ctx, "read", key, func(e *entry) error {
		if e.file == nil {
			return e.damage
		}
		return e.eachValue(func(head *fileHead, file *os.File) error {
			value, err := head.readValue(file)
			values = append(values, value)
			return err
		})
	})
	return values, err
}

func (s *folderStore) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for shard := range shards {
			for path, err := range s.files(shard) {
				if err == nil {
					err = ctx.Err()
				}
				if err != nil {
					yield("", s.explain("list", prefix, err))
					return
				}
				if strings.HasSuffix(path, tempSuffix) || isExtra(path) {
					continue
				}
				e := entry{}
				err := e.openAs(path)
				if errors.Is(err, ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if err != nil {
					yield("", s.explain("list", prefix, err))
					return
				}
				e.close()
				if !e.head.expired(time.Now()) && strings.HasPrefix(e.head.key, prefix) && !yield(e.head.key, nil) {
					return
				}
			}
		}
	}
}

// Check makes the folder, and locks a file in it.
func (s *folderStore) Check(ctx context.Context) error {
	const key = KeyPrefix + "check"
	return s.locked(ctx, "write", key, func(e *entry) error {
		if err := e.clear(fileHead{key: key, epoch: 1}); err != nil {
			return err
		}
		return os.Remove(e.path)
	})
}

// locked calls f with the file of a key while no one else looks at it.
func (s *folderStore) locked(ctx context.Context, doing, key string, f func(e *entry) error) error {
	e := entry{path: s.file(key)}
	lock, err := lockFolder(ctx, filepath.Dir(e.path))
	if err == nil {
		defer lock.Close()
		err = e.open()
	}
	if err == nil {
		defer e.close()
		err = f(&e)
	}
	return s.explain(doing, key, err)
}

// file returns the path of the file of a key. The name is a hash of the key, because a
// key may be longer than a name.
func (s *folderStore) file(key string) string {
	sum := sha256.Sum256([]byte(key))
	name := hex.EncodeToString(sum[:])
	return filepath.Join(s.path, name[:2], name)
}

// explain says in an error what was being done.
func (s *folderStore) explain(doing, key string, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s %q in the state store file:%s: %w", doing, key, s.path, err)
	for _, permanent := range []error{fs.ErrPermission, syscall.ENOTDIR, syscall.EROFS} {
		if errors.Is(err, permanent) {
			return &PermanentError{err}
		}
	}
	return err
}

// nextEpoch returns an epoch that is later than the previous one and, as clocks go on,
// than any before.
func nextEpoch(previous uint64) uint64 {
	return max(uint64(time.Now().UnixMicro()), previous+1)
}

// isLater reports whether an owner became that after a sequence began. Times are microseconds
// of the clock that epochs come from. It cannot be known of an owner that is in the future,
// because the clock was set back.
func isLater(owner uint64, began, now int64) bool {
	return owner > uint64(max(began, 0)) && owner <= uint64(now)
}

// expiry returns the time when what gets this TTL now expires; zero for none.
func expiry(ttl time.Duration) time.Time {
	if ttl == 0 {
		return time.Time{}
	}
	return time.Now().Add(ttl)
}
