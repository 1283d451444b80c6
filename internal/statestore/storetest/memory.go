// Package storetest has a state store in memory, for tests: it can fail, hang and lose what it
// has.
package storetest

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"tritonstateful/internal/statestore"
)

// Memory is a statestore.Store. It keeps values for ever. Its zero value is ready, and safe for
// concurrent use.
type Memory struct {
	// Before, if not nil, is called at the start of each call, with the name of the method and
	// the key. Its error is what the call returns.
	Before func(ctx context.Context, method, key string) error

	mu     sync.Mutex
	kept   map[string]kept
	last   uint64 // epoch
	saves  int
	Closed bool
}

type kept struct {
	epoch uint64
	value []byte
	since time.Time // of the epoch
}

var _ statestore.Store = (*Memory)(nil)

func (m *Memory) call(ctx context.Context, method, key string, f func()) error {
	if m.Before != nil {
		if err := m.Before(ctx, method, key); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == nil {
		m.kept = map[string]kept{}
	}
	f()
	return nil
}

// Begin implements statestore.Store.
func (m *Memory) Begin(ctx context.Context, key string, age, _ time.Duration) (epoch uint64, err error) {
	began, fenced := time.Now().Add(-age), error(nil)
	err = m.call(ctx, "Begin", key, func() {
		if owner := m.kept[key]; owner.since.After(began) {
			fenced = &statestore.FencedError{Owner: owner.epoch}
			return
		}
		m.last++
		epoch = m.last
		m.kept[key] = kept{epoch: epoch, since: time.Now()}
	})
	if err == nil {
		err = fenced
	}
	return epoch, err
}

// Take implements statestore.Store.
func (m *Memory) Take(ctx context.Context, key string, _ time.Duration) (epoch uint64, value []byte, err error) {
	err = m.call(ctx, "Take", key, func() {
		m.last++
		epoch, value = m.last, slices.Clone(m.kept[key].value)
		m.kept[key] = kept{epoch, m.kept[key].value, time.Now()}
	})
	return epoch, value, err
}

// Save implements statestore.Store.
func (m *Memory) Save(ctx context.Context, key string, epoch uint64, value []byte, _ time.Duration) error {
	return m.change(ctx, "Save", key, epoch, slices.Clone(value))
}

// Drop implements statestore.Store.
func (m *Memory) Drop(ctx context.Context, key string, epoch uint64) error {
	return m.change(ctx, "Drop", key, epoch, nil)
}

func (m *Memory) change(ctx context.Context, method, key string, epoch uint64, value []byte) error {
	var fenced error
	err := m.call(ctx, method, key, func() {
		if owner := m.kept[key].epoch; owner > epoch {
			fenced = &statestore.FencedError{Epoch: epoch, Owner: owner}
			return
		}
		m.kept[key] = kept{epoch, value, m.kept[key].since}
		if value != nil {
			m.saves++
		}
	})
	if err != nil {
		return err
	}
	return fenced
}

// Owner implements statestore.Store.
func (m *Memory) Owner(ctx context.Context, key string) (epoch uint64, err error) {
	err = m.call(ctx, "Owner", key, func() { epoch = m.kept[key].epoch })
	return epoch, err
}

// Get implements statestore.Store.
func (m *Memory) Get(ctx context.Context, key string) (value []byte, err error) {
	err = m.call(ctx, "Get", key, func() { value = slices.Clone(m.kept[key].value) })
	return value, err
}

// Keys implements statestore.Store.
func (m *Memory) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	var all []string
	err := m.call(ctx, "Keys", prefix, func() {
		for key := range m.kept {
			if strings.HasPrefix(key, prefix) {
				all = append(all, key)
			}
		}
	})
	return func(yield func(string, error) bool) {
		for _, key := range all {
			if !yield(key, nil) {
				return
			}
		}
		if err != nil {
			yield("", err)
		}
	}
}

// Check implements statestore.Store.
func (m *Memory) Check(ctx context.Context) error { return m.call(ctx, "Check", "", func() {}) }

// Put replaces the value of a key, whoever owns it.
func (m *Memory) Put(key string, value []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept[key] = kept{m.kept[key].epoch, value, m.kept[key].since}
}

// Value is what is saved under a key.
func (m *Memory) Value(key string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept[key].value
}

// Saves is how often a value was saved.
func (m *Memory) Saves() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.saves
}

// Lose empties the store.
func (m *Memory) Lose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.kept)
}

// Close implements statestore.Store.
func (m *Memory) Close() { m.Closed = true }
