package statestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	shards     = 256 // folders of a folderStore
	lockName   = "lock"
	tempSuffix = ".tmp"

	sweepPeriod = 5 * time.Minute // each folder is swept once
	unfinished  = 5 * time.Minute // a file that was not renamed by then never will be
)

// sweepForever deletes what has expired, one folder after the other, until ctx ends.
func (s *folderStore) sweepForever(ctx context.Context) {
	defer close(s.done)
	// A panic in a goroutine would end the server. Without sweeping, files stay too long and nothing else is wrong.
	defer func() { _ = recover() }()
	tick := time.NewTicker(sweepPeriod / shards)
	defer tick.Stop()
	for shard := 0; ; shard = (shard + 1) % shards {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.sweep(ctx, shard)
		}
	}
}

// sweep deletes the files of one folder that have expired or were never finished.
// Errors are left to the next time.
func (s *folderStore) sweep(ctx context.Context, shard int) {
	now := time.Now()
	for path, err := range s.files(shard) {
		if err != nil || ctx.Err() != nil {
			return
		}
		if strings.HasSuffix(path, tempSuffix) {
			if info, err := os.Lstat(path); err == nil && now.Sub(info.ModTime()) > unfinished {
				_ = os.Remove(path)
			}
			continue
		}
		if !hasExpired(path, now) {
			continue
		}
		// It may have been replaced meanwhile: looked at again under the lock, which is not waited for long.
		brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		if lock, err := lockFolder(brief, filepath.Dir(path)); err == nil {
			if hasExpired(path, now) {
				_ = os.Remove(path + beforeSuffix) // first: it must not be taken for what is saved
				_ = os.Remove(path)
			}
			lock.Close()
		}
		cancel()
	}
}

// hasExpired reports whether a file is to be deleted. A value before goes with its key, or earlier if the sequence has ended.
func hasExpired(path string, now time.Time) bool {
	if main, isBefore := strings.CutSuffix(path, beforeSuffix); isBefore && isExtra(path) {
		if head, err := headOf(main); err != nil || head.size > 0 {
			return false
		}
	}
	head, err := headOf(path)
	return err == nil && head.expired(now)
}

func headOf(path string) (fileHead, error) {
	f, err := os.Open(path)
	if err != nil {
		return fileHead{}, err
	}
	defer f.Close()
	return readFileHead(f)
}

// files returns the paths of all files of one folder but its lock.
func (s *folderStore) files(shard int) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		folder := filepath.Join(s.path, fmt.Sprintf("%02x", shard))
		found, err := os.ReadDir(folder)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				yield("", err)
			}
			return
		}
		for _, f := range found {
			if f.Name() != lockName && !yield(filepath.Join(folder, f.Name()), nil) {
				return
			}
		}
	}
}
