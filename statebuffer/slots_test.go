package statebuffer

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func slot(chunk, index int32) Slot { return Slot{Chunk: chunk, Index: index} }

func TestSlotSetFreedTwicePanics(t *testing.T) {
	var r slotSet
	r.grow(70)
	taken, _ := r.take()
	r.put(taken)
	require.PanicsWithValue(t, "statebuffer: a slot was freed twice", func() { r.put(taken) })
	require.Panics(t, func() { r.put(slot(0, 69)) }, "never taken")
	require.Panics(t, func() { r.put(NoSlot) })
	require.Equal(t, 70, r.free)
}

// TestSlotSetAgainstASet does random things to a slotSet and to a plain set. The
// sizes of the chunks stand around the width of a word.
func TestSlotSetAgainstASet(t *testing.T) {
	sizes := []int{1, 2, 63, 64, 65, 127, 128, 130}
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 0))
			var r slotSet
			p := plainSlots{}
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

// plainSlots is a slotSet without any cleverness: [chunk][slot] is taken.
type plainSlots [][]bool

func (p *plainSlots) grow(slots int) { *p = append(*p, make([]bool, slots)) }

func (p plainSlots) free(chunk int) (n int) {
	for _, taken := range p[chunk] {
		if !taken {
			n++
		}
	}
	return n
}

func (p plainSlots) allFree() (n int) {
	for chunk := range p {
		n += p.free(chunk)
	}
	return n
}

func (p plainSlots) take() (Slot, bool) {
	for chunk := range p {
		for i, taken := range p[chunk] {
			if !taken {
				p[chunk][i] = true
				return slot(int32(chunk), int32(i)), true
			}
		}
	}
	return NoSlot, false
}

func (p plainSlots) anyTaken(rng *rand.Rand) (Slot, bool) {
	var all []Slot
	for chunk := range p {
		for i, taken := range p[chunk] {
			if taken {
				all = append(all, slot(int32(chunk), int32(i)))
			}
		}
	}
	if len(all) == 0 {
		return NoSlot, false
	}
	return all[rng.IntN(len(all))], true
}

func (p plainSlots) requireEqual(t *testing.T, r *slotSet) {
	t.Helper()
	if len(p) != len(r.chunks) || p.allFree() != r.free {
		t.Fatalf("%d chunks with %d free: want %d with %d", len(r.chunks), r.free, len(p), p.allFree())
	}
	for chunk := range p {
		if got := r.chunks[chunk].free; got != p.free(chunk) || (got > 0) != (r.available.next(chunk) == chunk) {
			t.Fatalf("chunk %d has %d free: want %d", chunk, got, p.free(chunk))
		}
	}
}
