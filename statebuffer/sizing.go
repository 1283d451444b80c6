package statebuffer

import (
	"errors"
	"fmt"
	"math"
)

// Sizing says how many slots a store may hold and when it allocates and frees
// chunks of them.
type Sizing struct {
	Initial      int // slots of the first chunk, which is never freed
	Subsequent   int // slots of every further chunk
	MaxChunks    int // 1: everything is allocated at once
	AllocBelow   int // fewer free slots than this: allocate one chunk
	DeallocAbove int // more free slots than this: free the last chunk, if all of it is free
}

// Total is the number of slots with all chunks allocated.
func (s Sizing) Total() int { return s.Initial + (s.MaxChunks-1)*s.Subsequent }

// Lazy reports whether chunks come and go at run time.
func (s Sizing) Lazy() bool { return s.MaxChunks > 1 }

// SteadyFrom is the least DeallocAbove with which a chunk that was just allocated is
// not released again while no sequence starts or ends.
func (s Sizing) SteadyFrom() int { return s.AllocBelow - 1 + s.Subsequent }

// LazyBuffers are the four parameters of lazy allocation, in slots.
type LazyBuffers struct {
	Initial, Subsequent, AllocThreshold, DeallocThreshold int
}

// NewSizing computes the slots for candidates concurrent sequences, of which
// useRatio get one. The arithmetic is that of NVIDIA's stateful_backend, in
// float32 as there, so that a configuration means the same number of slots. A nil
// lazy means that the first chunk has a slot for each candidate, and at least as many as
// a batch has lanes, if there are that many.
//
// The limits of that backend, which wants slots for a whole batch in each chunk, hold
// only with a lazy. Without one, fewer candidates than maxBatch are no mistake: batches
// are smaller then.
//
// The error joins everything that is wrong.
func NewSizing(candidates, maxBatch int, useRatio float32, lazy *LazyBuffers) (Sizing, error) {
	want := LazyBuffers{Initial: max(candidates, maxBatch), Subsequent: maxBatch, AllocThreshold: maxBatch, DeallocThreshold: candidates}
	if lazy != nil {
		want = *lazy
	}
	scaled := float32(candidates) * useRatio
	if !(scaled >= 0 && scaled <= math.MaxInt32) {
		return Sizing{}, fmt.Errorf("max_candidate_sequences %d times max_candidate_sequence_use_ratio %g is not a valid number of sequences", candidates, useRatio)
	}
	slots := int(scaled)
	initial := min(want.Initial, slots)

	var faults []error
	noSlots := func(want string) {
		faults = append(faults, fmt.Errorf("there are %d slots, max_candidate_sequences %d times max_candidate_sequence_use_ratio %g, rounded down: %s; raise max_candidate_sequences or the ratio",
			slots, candidates, useRatio, want))
	}
	atLeast := func(name string, have int) {
		if have < maxBatch {
			faults = append(faults, fmt.Errorf("%s is %d: it must be at least max_batch_size, %d", name, have, maxBatch))
		}
	}
	switch {
	case slots == 0 && lazy == nil:
		noSlots("there must be at least one")
	case lazy == nil || initial >= maxBatch:
	case want.Initial < slots:
		faults = append(faults, fmt.Errorf("the first chunk has %d slots, initial_buffer_size: it must have at least max_batch_size, %d", initial, maxBatch))
	default:
		noSlots(fmt.Sprintf("with initial_buffer_size there must be at least max_batch_size, %d", maxBatch))
	}
	atLeast("subsequent_buffer_size", want.Subsequent)
	atLeast("buffer_alloc_threshold", want.AllocThreshold)
	if lazy != nil && want.AllocThreshold > initial {
		faults = append(faults, fmt.Errorf("buffer_alloc_threshold is %d: it must not be above the first chunk, %d slots", want.AllocThreshold, initial))
	}
	if len(faults) > 0 {
		return Sizing{}, errors.Join(faults...)
	}
	return Sizing{
		Initial:      initial,
		Subsequent:   want.Subsequent,
		MaxChunks:    max(1, 1+(slots-initial)/want.Subsequent),
		AllocBelow:   want.AllocThreshold,
		DeallocAbove: want.DeallocThreshold,
	}, nil
}
