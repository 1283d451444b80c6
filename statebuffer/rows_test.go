package statebuffer

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func row(chunk, index int32) Row { return Row{Chunk: chunk, Index: index} }

func TestRowSetTakesTheLowest(t *testing.T) {
	var r rowSet
	r.grow(3)
	r.grow(2)
	for _, want := range []Row{row(0, 0), row(0, 1), row(0, 2), row(1, 0), row(1, 1)} {
		got, ok := r.take()
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	got, ok := r.take()
	require.False(t, ok)
	require.Equal(t, NoRow, got)
	for _, back := range []Row{row(1, 0), row(0, 2), row(0, 1)} {
		r.put(back)
	}
	require.Equal(t, 3, r.free)
	for _, want := range []Row{row(0, 1), row(0, 2), row(1, 0)} {
		got, _ := r.take()
		require.Equal(t, want, got)
	}
}

func TestRowSetFreedTwicePanics(t *testing.T) {
	var r rowSet
	r.grow(70)
	taken, _ := r.take()
	r.put(taken)
	require.PanicsWithValue(t, "statebuffer: a row was freed twice", func() { r.put(taken) })
	require.Panics(t, func() { r.put(row(0, 69)) }, "never taken")
	require.Panics(t, func() { r.put(NoRow) })
	require.Equal(t, 70, r.free)
}

// TestRowSetAgainstASet does random things to a rowSet and to a plain set. The
// sizes of the chunks stand around the width of a word.
func TestRowSetAgainstASet(t *testing.T) {
	sizes := []int{1, 2, 63, 64, 65, 127, 128, 130}
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			var r rowSet
			p := plainRows{}
			for range 3000 {
				switch dice := rng.IntN(100); {
				case dice < 2 && len(p) < 6+int(seed%2)*100:
					size := sizes[rng.IntN(len(sizes))]
					r.grow(size)
					p.grow(size)
				case dice < 5 && len(p) > 1 && p.free(len(p)-1) == len(p[len(p)-1]):
					r.shrink()
					p = p[:len(p)-1]
				case dice < 50+10*int(seed%5):
					got, ok := r.take()
					want, wantOK := p.take()
					require.Equal(t, want, got)
					require.Equal(t, wantOK, ok)
				default:
					if taken, ok := p.anyTaken(rng); ok {
						r.put(taken)
						p[taken.Chunk][taken.Index] = false
					}
				}
				p.requireEqual(t, &r)
			}
		})
	}
}

// plainRows is a rowSet without any cleverness: [chunk][row] is taken.
type plainRows [][]bool

func (p *plainRows) grow(rows int) { *p = append(*p, make([]bool, rows)) }

func (p plainRows) free(chunk int) (n int) {
	for _, taken := range p[chunk] {
		if !taken {
			n++
		}
	}
	return n
}

func (p plainRows) allFree() (n int) {
	for chunk := range p {
		n += p.free(chunk)
	}
	return n
}

func (p plainRows) take() (Row, bool) {
	for chunk := range p {
		for i, taken := range p[chunk] {
			if !taken {
				p[chunk][i] = true
				return row(int32(chunk), int32(i)), true
			}
		}
	}
	return NoRow, false
}

func (p plainRows) anyTaken(rng *rand.Rand) (Row, bool) {
	var all []Row
	for chunk := range p {
		for i, taken := range p[chunk] {
			if taken {
				all = append(all, row(int32(chunk), int32(i)))
			}
		}
	}
	if len(all) == 0 {
		return NoRow, false
	}
	return all[rng.IntN(len(all))], true
}

func (p plainRows) requireEqual(t *testing.T, r *rowSet) {
	t.Helper()
	if len(p) != len(r.chunks) || p.allFree() != r.free {
		t.Fatalf("%d chunks with %d free: want %d with %d", len(r.chunks), r.free, len(p), p.allFree())
	}
	for chunk := range p {
		if got := r.chunks[chunk].free; got != p.free(chunk) || (got > 0) != (r.some.next(chunk) == chunk) {
			t.Fatalf("chunk %d has %d free: want %d", chunk, got, p.free(chunk))
		}
	}
}
