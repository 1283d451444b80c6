package statebuffer

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// steady is a store with sequences that all have a state, and lanes of some.
func steady(t testing.TB, layout Layout, convert Conversion, sequences, lanes int) (*Store, []Lane) {
	s := newTestStore(t, Options{
		States:   []State{{Name: "state", Layout: layout, Convert: convert}},
		Sizing:   Sizing{Initial: sequences, MaxChunks: 1},
		MaxLanes: lanes,
	})
	for n := range uint64(sequences) {
		q := begin(t, s, number(n), 1)
		step, err := s.Gather([]Lane{{Sequence: q}}, 1)
		require.NoError(t, err)
		require.NoError(t, s.Commit(step, 1))
	}
	batch := make([]Lane, lanes)
	for i := range batch {
		q, err := s.Continue(number(uint64(i*(sequences/lanes))), 1)
		require.NoError(t, err)
		batch[i] = Lane{Sequence: q}
	}
	return s, batch
}

func stepOnce(t testing.TB, s *Store, lanes []Lane) {
	step, err := s.Gather(lanes, len(lanes))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(step, 1); err != nil {
		t.Fatal(err)
	}
}

// TestNoAllocations: a step of known sequences allocates nothing.
func TestNoAllocations(t *testing.T) {
	for _, layout := range []Layout{{1, 512}, {4, 12}} {
		for _, convert := range []Conversion{Same, Half} {
			s, lanes := steady(t, layout, convert, 100, 10)
			now := time.Duration(1)
			allocs := testing.AllocsPerRun(100, func() {
				now++
				s.BeginBatch(now)
				for _, l := range lanes {
					if _, err := s.Continue(l.Sequence.key(), now); err != nil {
						t.Fatal(err)
					}
				}
				stepOnce(t, s, lanes)
				s.EndBatch(now)
				_, _ = s.Maintain(at(now))
			})
			require.Zero(t, allocs, "%v, conversion %d", layout, convert)
		}
	}
}

// BenchmarkStep is gather and commit of one lane of a batch.
func BenchmarkStep(b *testing.B) {
	for _, layout := range []Layout{{1, 20}, {1, 4096}, {4, 1024}, {64, 64}} {
		for _, convert := range []Conversion{Same, Half} {
			for _, lanes := range []int{1, 64} {
				b.Run(fmt.Sprintf("pieces=%d/bytes=%d/half=%d/lanes=%d", layout.Pieces, layout.LaneBytes(), convert, lanes), func(b *testing.B) {
					s, batch := steady(b, layout, convert, 1024, lanes)
					b.SetBytes(2 * layout.LaneBytes() * int64(lanes))
					for b.Loop() {
						stepOnce(b, s, batch)
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*lanes), "ns/lane")
				})
			}
		}
	}
}

// BenchmarkContinue is the bookkeeping of one request of a known sequence.
func BenchmarkContinue(b *testing.B) {
	for _, sequences := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("sequences=%d", sequences), func(b *testing.B) {
			s, _ := steady(b, Layout{1, 20}, Same, sequences, 1)
			n := uint64(0)
			for b.Loop() {
				n = (n + 7919) % uint64(sequences)
				if _, err := s.Continue(number(n), 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStartEnd is the bookkeeping of a whole sequence.
func BenchmarkStartEnd(b *testing.B) {
	for _, sequences := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("sequences=%d", sequences), func(b *testing.B) {
			s, _ := steady(b, Layout{1, 20}, Same, sequences, 1)
			s.End(number(uint64(sequences - 1)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Begin(number(1e9), 1); err != nil {
					b.Fatal(err)
				}
				s.End(number(1e9))
			}
		})
	}
}
