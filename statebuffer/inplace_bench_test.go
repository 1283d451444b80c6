package statebuffer

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkInPlace compares values that stay where runs wrote them with values that
// are copied from their slots and back, for batches of the same sequences, for two
// groups of them in turns, and for any of four times as many.
func BenchmarkInPlace(b *testing.B) {
	const lanes = 32
	for _, layout := range []Layout{{1, 512}, {1, 2 << 10}, {2, 1 << 10}, {1, 8 << 10}, {2, 4 << 10}, {1, 512 << 10}, {16, 32 << 10}} {
		for _, pattern := range []string{"together", "turns", "random"} {
			for _, inPlace := range []bool{false, true} {
				b.Run(fmt.Sprintf("pieces=%d/bytes=%d/%s/inPlace=%v", layout.Pieces, layout.LaneBytes(), pattern, inPlace), func(b *testing.B) {
					s, batches := patternOf(b, layout, lanes, pattern, inPlace)
					b.ReportAllocs()
					benchmarkBatches(b, s, batches)
				})
			}
		}
	}
}

// patternOf is a store with sequences that have a state, and batches of them.
func patternOf(t testing.TB, layout Layout, lanes int, pattern string, inPlace bool) (*Store, [][]Lane) {
	sequences := map[string]int{"together": lanes, "turns": 2 * lanes, "random": 4 * lanes}[pattern]
	s, all := storeOf(t, inPlace, layout, 4*sequences, sequences, lanes)
	rng := rand.New(rand.NewPCG(3, 4))
	rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	var batches [][]Lane
	for i := range 16 {
		if pattern == "random" {
			rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		}
		from := i * lanes % sequences
		if pattern == "random" {
			from = 0
		}
		batches = append(batches, lanesOf(all[from:from+lanes]))
	}
	return s, batches
}

// inOrder is a step of lanes in the order that the store likes.
func inOrder(t testing.TB, s *Store, lanes, sorted []Lane) {
	if order := s.Arrange(lanes); order != nil {
		for i, lane := range order {
			sorted[i] = lanes[lane]
		}
		lanes = sorted[:len(lanes)]
	}
	stepOnce(t, s, lanes)
}

// anyOf is that many batches of any of the sequences.
func anyOf(all []*Sequence, lanes, count int) (batches [][]Lane) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range count {
		rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		batches = append(batches, lanesOf(all[:lanes]))
	}
	return batches
}

// benchmarkBatches runs batches of equal size in turns.
func benchmarkBatches(b *testing.B, s *Store, batches [][]Lane) {
	lanes := len(batches[0])
	sorted := make([]Lane, lanes)
	for i := 0; b.Loop(); i++ {
		inOrder(b, s, batches[i%len(batches)], sorted)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*lanes), "ns/lane")
}

// BenchmarkInPlaceAmongIdle is a step among sequences that do nothing, some of
// which have ended, so that free cells lie between them. Copying is next to
// nothing.
func BenchmarkInPlaceAmongIdle(b *testing.B) {
	const lanes, active = 32, 128
	for _, idle := range []int{1, 1000, 100_000} {
		for _, ended := range []int{0, 3} {
			b.Run(fmt.Sprintf("idle=%d/ended=1 of %d", idle, ended), func(b *testing.B) {
				s, all := storeOf(b, true, Layout{1, 64}, idle+2*active, idle+active, lanes)
				for i := range idle {
					if ended > 0 && i%ended == 0 {
						s.End(number(uint64(i)))
					}
				}
				all = all[idle:]
				benchmarkBatches(b, s, anyOf(all, lanes, 16))
			})
		}
	}
}

// BenchmarkInPlaceFull is the same where every slot is taken, and batches are of any
// size: a cell for a sequence that has to move is a vacancy between others.
func BenchmarkInPlaceFull(b *testing.B) {
	const most, active = 32, 128
	for _, layout := range []Layout{{1, 64}, {2, 32}} {
		for _, idle := range []int{1, 1000, 100_000} {
			b.Run(fmt.Sprintf("pieces=%d/idle=%d", layout.Pieces, idle), func(b *testing.B) {
				s, all := storeOf(b, true, layout, idle+active, idle+active, most)
				all = all[idle:]
				rng := rand.New(rand.NewPCG(3, 4))
				sorted, total := make([]Lane, most), 0
				for b.Loop() {
					rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
					lanes := 1 + rng.IntN(most)
					inOrder(b, s, lanesOf(all[:lanes]), sorted)
					total += lanes
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(total), "ns/lane")
			})
		}
	}
}
