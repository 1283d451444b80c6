package statebuffer

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFirstFit against a plain search, while counts come and change.
func TestFirstFit(t *testing.T) {
	var f firstFit
	require.Negative(t, f.first(0, 1))
	rng := rand.New(rand.NewPCG(4, 2))
	var counts []int32
	for range 5000 {
		if rng.IntN(50) == 0 {
			counts = append(counts, 0)
			f.extend(len(counts))
		}
		if len(counts) > 0 {
			at, count := rng.IntN(len(counts)), rng.Int32N(20)*rng.Int32N(2)
			counts[at] = count
			f.set(at, count)
		}
		from, least := rng.IntN(len(counts)+1), 1+rng.Int32N(20)
		want := slices.IndexFunc(counts[from:], func(c int32) bool { return c >= least })
		if want >= 0 {
			want += from
		}
		require.Equal(t, want, f.first(from, least), "%d or more from %d on in %v", least, from, counts)
	}
}
