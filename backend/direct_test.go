package backend

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
)

// direct has that many batch slots in the batch.
func direct(batchSlots int) func(*setup) {
	return func(s *setup) { s.config.MaxBatchSize, s.config.Sequence.Oldest = batchSlots, nil }
}

// idle is what the direct scheduler sends for a batch slot whose sequence has no request.
var idle = ask{}

// TestDirect: idle lanes of the direct strategy are answered and nothing else.
func TestDirect(t *testing.T) {
	model, c := sumModel(), sumConfig()
	c.Sequence.Oldest = nil
	in := model.loaded(t, c)
	require.Equal(t, 4, in.store.Usage().Total, "a slot for each lane, whatever the ratio")
	got := send(t, in,
		Request{Sequence: SequenceID{Number: 1}, Start: true, Inputs: intInput(tensor.Shape{1, 2}, 1, 2)},
		Request{Inputs: intInput(tensor.Shape{1, 2}, 9, 9)})
	require.NoError(t, got[0].err)
	require.NoError(t, got[1].err)
	require.Equal(t, []int32{1, 2}, numbers(got[0].outputs[0]))
	require.Equal(t, 1, in.store.Usage().Live)
}

// TestDirectBatchSlotIsGivenAway: Triton frees the batch slot of a sequence that idled or
// was cancelled, and sends no notice. A START there says that the sequence before is gone.
func TestDirectBatchSlotIsGivenAway(t *testing.T) {
	for _, full := range []string{"reject", "evict_lru"} {
		t.Run(full, func(t *testing.T) {
			s := newServer(t, direct(4), param("when_full", full))
			s.batch(startOf(1), startOf(2), startOf(3), startOf(4)).ok()
			s.batch(nextOf(1), nextOf(2)).ok() // used after 3 and 4, which are to stay
			s.forget(1, 2)
			s.batch(startOf(101), startOf(102)).ok()
			s.batch(idle, idle, nextOf(3), nextOf(4)).ok()
			s.batch(nextOf(1)).want("sequence 1: its batch slot was given")
			s.batch(nextOf(101), nextOf(102), nextOf(3), nextOf(4)).ok()
			require.EqualValues(t, 2, s.in.store.Counters().Displaced)
			require.Zero(t, s.in.store.Counters().Evicted)
		})
	}
}

// TestDirectStory imitates Triton's direct scheduler, which drops sequences without a
// word and gives their batch slots, and later also their IDs, to others. Every
// sequence that it serves must get its answers.
func TestDirectStory(t *testing.T) {
	t.Parallel()
	const batchSlots, ids, batches = 5, 12, 5000
	rng := rand.New(rand.NewPCG(1, 2))
	s := newServer(t, direct(batchSlots))
	var serves [batchSlots]string // the sequence of each batch slot, as Triton has it
	for range batches {
		asks := make([]ask, 1+rng.IntN(batchSlots)) // cut short after the last request
		for batchSlot := range asks {
			if rng.IntN(3) == 0 {
				serves[batchSlot] = "" // dropped
			}
			id := serves[batchSlot]
			switch {
			case rng.IntN(4) == 0:
				continue // idle
			case id == "":
				if id = fmt.Sprint(1 + rng.IntN(ids)); slices.Contains(serves[:], id) && rng.IntN(2) == 0 {
					continue // else the END of the sequence that has the ID is queued
				}
				asks[batchSlot] = ask{id: id, start: true, end: rng.IntN(8) == 0}
			default:
				asks[batchSlot] = ask{id: id, start: rng.IntN(20) == 0, end: rng.IntN(8) == 0}
			}
			if serves[batchSlot] = id; asks[batchSlot].end {
				serves[batchSlot] = ""
			}
		}
		s.batch(asks...).ok()
	}
	require.Greater(t, s.in.store.Counters().Displaced, uint64(batches/10))
}

// TestDirectExpired: a sequence that idled too long leaves its batch slot, which then
// belongs to no sequence.
func TestDirectExpired(t *testing.T) {
	s := newServer(t, direct(2))
	s.batch(startOf(1)).ok()
	s.now += 13 * time.Second // more than twice the limit of one and ten seconds
	s.forget(1)
	s.batch(idle, startOf(2)).ok()
	s.batch(startOf(3), nextOf(2)).ok()
	require.Zero(t, s.in.store.Counters().Displaced)
	s.batch(endOf(3), endOf(2)).ok()
	s.batch(startOf(4), startOf(5)).ok()
	require.Zero(t, s.in.store.Counters().Displaced)
}

// TestDirectRefusedStartTakesTheBatchSlot: the batch slot is the new sequence's, also when
// its START does not run.
func TestDirectRefusedStartTakesTheBatchSlot(t *testing.T) {
	s := newServer(t, direct(2))
	s.batch(startOf(1), startOf(2)).ok()
	s.forget(1)
	s.batch(startOf(3).cancel(), nextOf(2)).want("cancelled", "")
	s.batch(nextOf(1), nextOf(2)).want("its batch slot was given", "")
	s.batch(startOf(4), nextOf(2)).ok()
}

// TestDirectOnlyAStartTakesABatchSlot: whatever else comes at a batch slot, its sequence
// stays, and so does one that starts again at its own.
func TestDirectOnlyAStartTakesABatchSlot(t *testing.T) {
	s := newServer(t, direct(2))
	s.batch(startOf(1), startOf(2)).ok()
	s.batch(nextOf(9), idle).want("no such sequence", "")
	s.batch(startOf(1), nextOf(2)).ok()
	s.batch(nextOf(1), nextOf(2)).ok()
	require.Zero(t, s.in.store.Counters().Displaced)
}

// TestDirectSequenceMoves: a sequence that Triton dropped starts again at another
// batch slot. Its old one may be given away without harm to it, even in the same batch.
func TestDirectSequenceMoves(t *testing.T) {
	s := newServer(t, direct(3))
	s.batch(startOf(1)).ok()
	s.batch(idle, startOf(1)).ok()
	s.batch(startOf(2), nextOf(1)).ok()
	s.batch(startOf(1), startOf(3), startOf(2)).ok() // all have moved
	s.batch(nextOf(1), nextOf(3), nextOf(2)).ok()
	s.batch(endOf(1), startOf(1), nextOf(2)).ok() // Triton forgets an ID when its END is queued
	s.batch(idle, nextOf(1), nextOf(2)).ok()
}

// TestDirectNamesItsOwnLimit: direct has no max_candidate_sequences that anybody
// could change.
func TestDirectNamesItsOwnLimit(t *testing.T) {
	s := newServer(t, direct(2))
	o := s.batch(startOf(1), startOf(2), startOf(3)) // Triton would not send three
	require.ErrorContains(t, o.answers[2].err, "2 of 2 slots are taken")
	require.Len(t, s.log.having("max_batch_size 2 times max_candidate_sequence_use_ratio 1 is 2"), 1)
	for _, parameter := range []struct{ name, value, want string }{
		{"max_candidate_sequence_use_ratio", "0.9", "max_candidate_sequence_use_ratio is 0.9: the direct scheduler"},
		{"max_state_memory_bytes", "1", "lower max_batch_size, or"},
	} {
		_, err := load(t, direct(2), param(parameter.name, parameter.value))
		require.ErrorContains(t, err, parameter.want)
		require.NotContains(t, err.Error(), "max_candidate_sequences")
	}
}
