package statebuffer

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// draining is a store of two chunks, of which the last one is to be freed: no sequence has
// a slot of it, but values of a mebibyte are there.
func draining(t *testing.T) *Store {
	s := newTestStore(t, Options{
		States: []State{{Name: "state", Layout: Layout{1, 1 << 20}}},
		Sizing: Sizing{Initial: 12, Subsequent: 12, MaxChunks: 2, AllocBelow: 2, DeallocAbove: 12}, MaxLanes: 4,
	})
	for n := range uint64(24) {
		doStep(t, s, Lane{Sequence: begin(t, s, number(n), 1)}, fmt.Sprintf("state %02d", n))
		_, err := s.Maintain(at(1))
		require.NoError(t, err)
	}
	for n := range uint64(24) { // those that have slots of the last chunk
		if q := s.Touch(number(n), 1); q.slot.Chunk == 1 || n == 0 {
			s.End(number(n))
		}
	}
	last := inPlaceOf(s).pool.last()
	for n := uint64(1); n < 12; n++ { // all others are moved there
		q := s.Touch(number(n), 1)
		if cell := last.findCells(1); q.slab != last {
			last.open(cell, 1)
			last.copy(cell, q.slab, q.cell())
			last.assign(q, cell)
		}
	}
	require.Equal(t, 13, s.Usage().Free)
	return s
}

// valuesInLast is how many values are in the last chunk.
func valuesInLast(s *Store) (n int) {
	for _, q := range inPlaceOf(s).pool.last().owners {
		if q != nil {
			n++
		}
	}
	return n
}

// TestChunkIsFreedInSteps: after a batch no more than 4 MiB are moved out of a chunk
// that is to be freed, and none are put there; all values are as they were.
func TestChunkIsFreedInSteps(t *testing.T) {
	s := draining(t)
	for _, left := range []int{7, 3} {
		clock := time.Duration(0)
		change, err := s.Maintain(func() time.Duration { clock += 3; return clock })
		require.NoError(t, err)
		require.Equal(t, Change{Took: 3}, change)
		for n := uint64(1); n < 12; n++ {
			if q := s.Touch(number(n), 1); q.slab != inPlaceOf(s).pool.last() {
				doStep(t, s, Lane{Sequence: q}, fmt.Sprintf("state %02d", n))
			}
		}
		require.Equal(t, left, valuesInLast(s))
	}
	change, err := s.Maintain(at(1))
	require.NoError(t, err)
	require.Equal(t, Change{Shrunk: true}, change)
	require.Equal(t, 1, s.Usage().Chunks)
	for n := uint64(1); n < 12; n++ {
		require.Equal(t, fmt.Sprintf("state %02d", n), doStep(t, s, Lane{Sequence: s.Touch(number(n), 1)}, "state --"))
	}
}

// TestChunkIsKeptAfterAll: a START takes one of its slots while it is emptied.
func TestChunkIsKeptAfterAll(t *testing.T) {
	s := draining(t)
	for range 2 {
		change, err := s.Maintain(at(1))
		require.NoError(t, err)
		require.Equal(t, Change{}, change)
		for n := uint64(50); s.Usage().Free > 0; n++ {
			doStep(t, s, Lane{Sequence: begin(t, s, number(n), 1)}, "state ++")
		}
	}
	for n := uint64(1); n < 12; n++ {
		require.Equal(t, fmt.Sprintf("state %02d", n), doStep(t, s, Lane{Sequence: s.Touch(number(n), 1)}, "state --"))
	}
}
