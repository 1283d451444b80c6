package statestore

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestManyOwners: servers take one sequence from each other while they save it. Epochs
// are unique, a value that is taken is the last one that was saved, and nothing of an
// earlier owner is saved after.
func TestManyOwners(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		var epochs sync.Map
		var taken, fenced, saves atomic.Int64
		var servers sync.WaitGroup
		for range 4 {
			s := where.open(t)
			servers.Go(func() {
				for range 25 {
					epoch, value, err := s.Take(t.Context(), key, AnyStep, minute)
					if err != nil {
						t.Error(err)
						return
					}
					taken.Add(1)
					if _, twice := epochs.LoadOrStore(epoch, true); twice {
						t.Error("epoch", epoch, "was given twice")
					}
					count := uint64(0)
					if value != nil {
						record, err := Parse(value)
						if err != nil {
							t.Error(err)
							return
						}
						if record.Epoch >= epoch {
							t.Error("took epoch", epoch, "and a value of epoch", record.Epoch)
						}
						count = record.Step
					}
					var w Writer
					for step := range uint64(5) {
						if err := w.Begin(nil, nil); err != nil {
							t.Error(err)
						}
						err := s.Save(t.Context(), key, epoch, w.Seal(Head{Epoch: epoch, Step: count + step + 1}), minute)
						var lost *FencedError
						if errors.As(err, &lost) {
							if lost.Owner <= epoch {
								t.Error("refused for an older owner", lost.Owner)
							}
							fenced.Add(1)
							break
						}
						if err != nil {
							t.Error(err)
							return
						}
						saves.Add(1)
					}
				}
			})
		}
		servers.Wait()
		values, err := where.open(t).Get(t.Context(), key)
		require.NoError(t, err)
		record, err := Parse(values[0])
		require.NoError(t, err)
		require.Equal(t, uint64(saves.Load()), record.Step, "every save that was accepted counts once")
		require.EqualValues(t, 100, taken.Load())
		t.Log(saves.Load(), "saves,", fenced.Load(), "refused")
	})
}

func TestConcurrentSequences(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		s := where.open(t)
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				key := Key("m", fmt.Sprint(i))
				epoch, err := s.Begin(t.Context(), key, 0, minute)
				if err != nil {
					t.Error(err)
					return
				}
				for step := range 20 {
					value := bytes.Repeat([]byte{byte(i), byte(step)}, 5000)
					if err := s.Save(t.Context(), key, epoch, value, minute); err != nil {
						t.Error(err)
					}
					if got, err := s.Get(t.Context(), key); err != nil || len(got) != 1 || !bytes.Equal(got[0], value) {
						t.Error(key, step, err)
					}
				}
			})
		}
		all.Wait()
	})
}
