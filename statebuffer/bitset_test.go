package statebuffer

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBitset compares it with a slice that is searched from the front.
func TestBitset(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, numbers := range []int{1, 63, 64, 65, 4096, 4097, 10_000} {
		set, plain := newBitset(numbers), make([]bool, numbers)
		require.Negative(t, set.next(0))
		for range 2000 {
			number := rng.IntN(numbers)
			if rng.IntN(3) > 0 { // few are in it at a time
				number = rng.IntN(min(numbers, 40)) * (numbers / min(numbers, 40))
			}
			if plain[number] = !plain[number] && rng.IntN(2) == 0; plain[number] {
				set.add(number)
			} else {
				set.remove(number)
			}
			from, want := rng.IntN(numbers+1), -1
			for n := from; n < numbers && want < 0; n++ {
				if plain[n] {
					want = n
				}
			}
			require.Equal(t, want, set.next(from), "from %d of %d", from, numbers)
			require.Equal(t, plain[number], set.has(number))
		}
	}
}

// TestFullBitset has all numbers below the bound, and no other.
func TestFullBitset(t *testing.T) {
	for _, numbers := range []int{0, 1, 63, 64, 65, 4095, 4096, 4097, 10_000} {
		set, added := fullBitset(numbers), newBitset(numbers)
		for number := range numbers {
			added.add(number)
		}
		require.Equal(t, added, set, "%d numbers", numbers)
	}
}
