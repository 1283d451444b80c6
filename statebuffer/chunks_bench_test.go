package statebuffer

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// inChunks is a store of many small chunks, all of whose slots but the last are
// taken by sequences that have a state.
func inChunks(b *testing.B, inPlace bool, chunks, slots int) (*Store, []*Sequence) {
	from := int64(-1)
	if inPlace {
		from = 1
	}
	s := newTestStore(b, Options{
		States:   []State{{Name: "state", Layout: Layout{1, 64}}},
		Sizing:   Sizing{Initial: slots, Subsequent: slots, MaxChunks: chunks, AllocBelow: 2, DeallocAbove: 1 << 30},
		MaxLanes: slots, inPlaceFrom: from,
	})
	all := make([]*Sequence, chunks*slots-1)
	for n := range all {
		all[n] = begin(b, s, number(uint64(n)), 1)
		stepOnce(b, s, []Lane{{Sequence: all[n]}})
		_, err := s.Maintain(at(1))
		require.NoError(b, err)
	}
	require.Equal(b, chunks, s.Usage().Chunks)
	return s, all
}

// BenchmarkStartInChunks is the bookkeeping of a whole sequence, of which none but the
// last chunk has a slot.
func BenchmarkStartInChunks(b *testing.B) {
	for _, chunks := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("chunks=%d", chunks), func(b *testing.B) {
			s, _ := inChunks(b, false, chunks, 16)
			for b.Loop() {
				if _, err := s.Begin(number(1e9), 1); err != nil {
					b.Fatal(err)
				}
				s.End(number(1e9))
			}
		})
	}
}

// BenchmarkInPlaceInChunks is a step of any 16 of 160 sequences, where every slot is taken
// but one, or every third sequence has ended, so that free cells lie between others.
func BenchmarkInPlaceInChunks(b *testing.B) {
	const lanes, active = 16, 160
	for _, chunks := range []int{20, 100, 10_000} {
		for _, ended := range []int{0, 3} {
			b.Run(fmt.Sprintf("chunks=%d/ended=1 of %d", chunks, ended), func(b *testing.B) {
				s, all := inChunks(b, true, chunks, lanes)
				for i := range all[active:] {
					if ended > 0 && i%ended == 0 {
						s.End(all[active+i].key())
					}
				}
				benchmarkBatches(b, s, anyOf(all[:active], lanes, 64))
			})
		}
	}
}
