package statebuffer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// checkAreas: between steps every value has one cell, every used cell is for
// somebody, and nothing is held.
func (w *world) checkAreas() {
	r, homes := w.store.roamer, 0
	for _, a := range append(r.bays[:], r.pool...) {
		free := 0
		for cell := 0; cell < a.cells(); cell++ {
			if q := a.tenant[cell]; q != nil {
				homes++
				require.Same(w.t, a, q.home)
				require.Equal(w.t, cell, q.cell)
				require.True(w.t, a.isUsed(cell))
			}
			if !a.isUsed(cell) {
				free++
				continue
			}
			at := int(a.start[cell])
			require.True(w.t, at <= cell && cell < at+int(a.width[at]))
			tenants := 0
			for _, q := range a.tenant[at : at+int(a.width[at])] {
				if q != nil {
					tenants++
				}
			}
			require.NotZero(w.t, tenants, "a block that is nobody's")
			require.Equal(w.t, tenants, int(a.live[at]))
		}
		require.Equal(w.t, free, a.free)
	}
	for q := w.store.live.first; q != nil; q = q.next {
		if !q.fresh {
			homes--
			require.NotNil(w.t, q.home)
		}
	}
	require.GreaterOrEqual(w.t, homes, 0, "only a sequence that starts anew may have an old value too")
	require.Equal(w.t, span{}, r.in)
	require.Equal(w.t, span{}, r.out)
}

// roamingIf is a store with sequences that have a state, which roams or not.
func roamingIf(t testing.TB, roams bool, layout Layout, slots, sequences, lanes int) (*Store, []*Sequence) {
	from := int64(-1)
	if roams {
		from = 1
	}
	s := newTestStore(t, Options{
		States:   []State{{Name: "state", Layout: layout}},
		Sizing:   Sizing{Initial: slots, MaxChunks: 1},
		MaxLanes: lanes, RoamFrom: from,
	})
	all := make([]*Sequence, sequences)
	for n := range all {
		all[n] = begin(t, s, number(uint64(n)), 1)
		stepOnce(t, s, []Lane{{Sequence: all[n]}})
	}
	return s, all
}

func lanesOf(sequences []*Sequence) []Lane {
	lanes := make([]Lane, len(sequences))
	for i, q := range sequences {
		lanes[i].Sequence = q
	}
	return lanes
}
