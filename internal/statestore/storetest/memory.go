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
	epoch  uint64
	values [][]byte  // the newest first
	since  time.Time // of the epoch
	ended  *ended
}

// ended is what stays, for ever, of a sequence that has ended: the newest value with fewer steps.
type ended struct {
	steps uint64
	value []byte
}

// stepOf is the number of steps of a value; 0 if it is damaged.
func stepOf(value []byte) uint64 {
	record, err := statestore.Parse(value)
	if err != nil {
		return 0
	}
	return record.Step
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
func (m *Memory) Take(ctx context.Context, key string, atMost uint64, _ time.Duration) (epoch uint64, value []byte, err error) {
	err = m.call(ctx, "Take", key, func() {
		m.last++
		epoch = m.last
		values := m.kept[key].values
		if end := m.kept[key].ended; end != nil && atMost < end.steps && stepOf(end.value) <= atMost {
			values = [][]byte{end.value}
		}
		if i := slices.IndexFunc(values, func(value []byte) bool { return stepOf(value) <= atMost }); i > 0 {
			values = values[i:]
		}
		if len(values) > 0 {
			value = slices.Clone(values[0])
		}
		m.kept[key] = kept{epoch: epoch, values: values, since: time.Now()}
	})
	return epoch, value, err
}

// TakeSaved implements statestore.Store.
func (m *Memory) TakeSaved(ctx context.Context, key string, atMost uint64, ttl time.Duration) (epoch uint64, value []byte, err error) {
	m.mu.Lock()
	before := m.kept[key]
	m.mu.Unlock()
	epoch, value, err = m.Take(ctx, key, atMost, ttl)
	if err == nil && value == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		epoch, m.kept[key] = 0, before
	}
	return epoch, value, err
}

// Save implements statestore.Store.
func (m *Memory) Save(ctx context.Context, key string, epoch uint64, value []byte, _ time.Duration) error {
	return m.change(ctx, "Save", key, epoch, func(values [][]byte) [][]byte {
		m.saves++
		values = slices.DeleteFunc(slices.Clone(values), func(other []byte) bool { return stepOf(other) >= stepOf(value) })
		return append([][]byte{slices.Clone(value)}, values[:min(1, len(values))]...)
	})
}

// Drop implements statestore.Store.
func (m *Memory) Drop(ctx context.Context, key string, epoch uint64) error {
	return m.change(ctx, "Drop", key, epoch, func([][]byte) [][]byte { return nil })
}

// End implements statestore.Store.
func (m *Memory) End(ctx context.Context, key string, epoch, steps uint64) error {
	var left *ended
	err := m.change(ctx, "End", key, epoch, func(values [][]byte) [][]byte {
		if i := slices.IndexFunc(values, func(value []byte) bool { return stepOf(value) < steps }); i >= 0 {
			left = &ended{steps, values[i]}
		}
		return nil
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.kept[key]; err == nil && now.epoch == epoch {
		now.ended = left
		m.kept[key] = now
	}
	return err
}

func (m *Memory) change(ctx context.Context, method, key string, epoch uint64, change func(values [][]byte) [][]byte) error {
	var fenced error
	err := m.call(ctx, method, key, func() {
		if owner := m.kept[key].epoch; owner > epoch {
			fenced = &statestore.FencedError{Epoch: epoch, Owner: owner}
			return
		}
		m.kept[key] = kept{epoch: epoch, values: change(m.kept[key].values), since: m.kept[key].since}
	})
	if err != nil {
		return err
	}
	return fenced
}

// Owner implements statestore.Store.
func (m *Memory) Owner(ctx context.Context, key string) (epoch uint64, steps []uint64, err error) {
	err = m.call(ctx, "Owner", key, func() {
		epoch = m.kept[key].epoch
		for _, value := range m.kept[key].values {
			steps = append(steps, stepOf(value))
		}
	})
	return epoch, steps, err
}

// Get implements statestore.Store.
func (m *Memory) Get(ctx context.Context, key string) (values [][]byte, err error) {
	err = m.call(ctx, "Get", key, func() {
		for _, value := range m.kept[key].values {
			values = append(values, slices.Clone(value))
		}
	})
	return values, err
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

// Put replaces the values of a key by one, whoever owns it.
func (m *Memory) Put(key string, value []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept[key] = kept{epoch: m.kept[key].epoch, values: [][]byte{value}, since: m.kept[key].since}
}

// Value is the newest value of a key.
func (m *Memory) Value(key string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if values := m.kept[key].values; len(values) > 0 {
		return values[0]
	}
	return nil
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
