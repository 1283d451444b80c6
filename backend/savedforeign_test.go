package backend

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/statestore"
	"tritonstateful/internal/statestore/storetest"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// TestNotOurs: what another model, or other states, have saved is not taken.
func TestNotOurs(t *testing.T) {
	start := func(t *testing.T, store *storetest.Memory, edits ...func(*setup)) *server {
		first := newServer(t, savedIn(t, store, "steps=1"))
		first.batch(startOf(7)).ok()
		synctest.Wait()
		return goesOn(t, first, store, append([]func(*setup){savedIn(t, store, "steps=1")}, edits...)...)
	}
	otherWeights := func(s *setup) {
		file := filepath.Join(s.directory, "3", "model.onnx")
		if err := os.WriteFile(file, []byte("other weights"), 0o600); err != nil {
			panic(err)
		}
	}
	inBubble(t, "model", func(t *testing.T) {
		s := start(t, &storetest.Memory{}, otherWeights)
		s.forget(7)
		s.resumed(startOf(7).saying(resumes)).want("saved by another model").code(status.InvalidArg)
	})
	inBubble(t, "adopted", func(t *testing.T) {
		s := start(t, &storetest.Memory{}, otherWeights, param("adopt", "same_layout"))
		s.resumed(startOf(7).saying(resumes)).ok()
	})
	inBubble(t, "layout", func(t *testing.T) {
		fp64 := accumulate()
		fp64 = fp64.of(tensor.FP64)
		s := start(t, &storetest.Memory{}, streamsOf(fp64))
		s.forget(7)
		s.resumed(startOf(7).saying(resumes)).want("with other states")
	})
	inBubble(t, "damaged", func(t *testing.T) {
		store := &storetest.Memory{}
		s := start(t, store)
		value := store.Value(key7)
		value[len(value)-1]++
		store.Put(key7, value)
		s.forget(7)
		s.resumed(startOf(7).saying(requires)).want("no state of it is saved")
		s.resumed(startOf(7).saying(resumes)).ok()
		require.NotEmpty(t, s.log.having("damaged"))
	})
	inBubble(t, "known to be damaged", func(t *testing.T) {
		store := &storetest.Memory{}
		s := start(t, store)
		store.Before = func(_ context.Context, method, _ string) error {
			if method == "Take" {
				return fmt.Errorf("take over: %w", statestore.ErrDamaged)
			}
			return nil
		}
		s.forget(7)
		s.resumed(startOf(7).saying(requires)).want("no state of it is saved")
		s.resumed(startOf(7).saying(resumes)).ok()
		require.NotEmpty(t, s.log.having("damaged"))
		synctest.Wait()
		s.batch(nextOf(7).saying(atStep(1))).ok()
	})
	inBubble(t, "live, with what is known to be damaged", func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "steps=1"))
		s.batch(startOf(7)).ok()
		synctest.Wait()
		store.Before = func(_ context.Context, method, _ string) error {
			if method == "Owner" {
				return fmt.Errorf("look up the owner: %w", statestore.ErrDamaged)
			}
			return nil
		}
		o := s.resumed(startOf(7).saying(resumes)).ok()
		require.EqualValues(t, 2, o.answers[0].parameters.Step)
	})
	inBubble(t, "a damaged one after one that is whole", func(t *testing.T) {
		store := &storetest.Memory{}
		first := newServer(t, savedIn(t, store, "steps=1"))
		first.batch(startOf(7)).ok()
		synctest.Wait()
		before := maps.Clone(first.plain)
		first.batch(nextOf(7)).ok()
		synctest.Wait()
		value := store.Value(key7)
		value[len(value)-1]++
		first.plain = before
		s := goesOn(t, first, store, savedIn(t, store, "steps=1"))
		o := s.resumed(startOf(7).saying(requires)).ok()
		require.Equal(t, &AnswerParameters{Step: 2, SavedStep: 1, Resumed: true}, o.answers[0].parameters)
		require.NotEmpty(t, s.log.having("damaged"))
	})
	inBubble(t, "a later format", func(t *testing.T) {
		store := &storetest.Memory{}
		s := start(t, store)
		value := store.Value(key7)
		value[4] = 2
		s.forget(7)
		for _, wants := range []Parameters{resumes, requires} {
			s.resumed(startOf(7).saying(wants)).want("its saved state does not fit: read a saved state of 212 bytes: it has format 2: this version reads 1").code(status.InvalidArg)
		}
		require.Equal(t, value, store.Value(key7), "the server that saved it can go on")
	})
}

// TestModelHash shows what identifies a model: its file and those next to it, but not the
// backend's own, which lie there where images cannot be changed.
func TestModelHash(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	hash := func() [8]byte {
		found, err := modelHash(filepath.Join(folder, "model.onnx"))
		require.NoError(t, err)
		return found
	}
	write("model.onnx", "graph")
	alone := hash()
	for _, name := range ownFiles {
		write(name, "of any version")
	}
	require.Equal(t, alone, hash())
	write("weights.bin", "weights")
	require.NotEqual(t, alone, hash())
}
