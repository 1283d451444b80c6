package statebuffer

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
)

// twins are sequences that stay in one store, and the same ones that go from one store to
// another at any moment.
type twins struct {
	t      *testing.T
	rng    *rand.Rand
	stay   *Store
	stores [2]*Store
	at     map[uint64]int // which of the stores a sequence is in
	round  int
}

// TestRestoredGoesOnAsIfNeverInterrupted, whatever its states are and become.
func TestRestoredGoesOnAsIfNeverInterrupted(t *testing.T) {
	fixed := func(layout Layout, convert Conversion) []State {
		shape := tensor.Shape{layout.Pieces, 1, layout.PieceBytes / 4}
		return []State{{Name: "state", DType: tensor.FP32, Shape: shape, Layout: layout, Convert: convert}, {Name: "other", DType: tensor.Uint8, Shape: tensor.Shape{1}, Layout: Layout{1, 1}}}
	}
	for name, o := range map[string]Options{
		"copied":         {States: fixed(Layout{3, 8}, Same), inPlaceFrom: -1},
		"half":           {States: fixed(Layout{3, 8}, Half)[:1]},
		"pinned":         {States: fixed(Layout{1, 8}, Same), inPlaceFrom: 1},
		"pinned strips":  {States: fixed(Layout{4, 8}, Same), inPlaceFrom: 1},
		"replaced":       {Varying: []Varying{{Axis: 1, InitialShape: tensor.Shape{2, 1, 0, 3}}}},
		"appended":       {Varying: []Varying{{Axis: 1, InitialShape: tensor.Shape{2, 1, 1, 3}, Update: Append, AppendAxis: 2}}},
		"appended first": {Varying: []Varying{{Axis: 1, InitialShape: tensor.Shape{0, 1, 3}, Update: Append}}},
		"kept":           {Varying: []Varying{{Axis: 0, InitialShape: tensor.Shape{1, 2, 2}, Update: KeepIfEmpty}}},
		"left-padded":    {Varying: []Varying{{Axis: 0, InitialShape: tensor.Shape{1, 2, 0, 3}, LeftPadded: true, PadAxis: 2}}},
		"mixed": {
			States: fixed(Layout{1, 8}, Same), inPlaceFrom: 1,
			Varying: []Varying{{Axis: 1, InitialShape: tensor.Shape{2, 1, 1, 3}, LeftPadded: true, PadAxis: 2}, {Axis: 0, InitialShape: tensor.Shape{1, 0}, Update: Append, AppendAxis: 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range o.Varying {
				o.Varying[i].Name, o.Varying[i].DType = fmt.Sprint("cache ", i), tensor.Uint8
			}
			o.MaxLanes, o.Sizing, o.Limits.Tombstones = 3, Sizing{Initial: 14, MaxChunks: 1}, 9
			w := &twins{t: t, rng: rand.New(rand.NewPCG(4, 2)), stay: newTestStore(t, o), at: map[uint64]int{}}
			for i := range w.stores {
				w.stores[i] = newTestStore(t, o)
				if w.stores[i].InPlace() {
					inPlaceOf(w.stores[i]).pins.from, inPlaceOf(w.stores[i]).pins.share = 1, 1
				}
			}
			for w.round = range 60 {
				w.step()
			}
		})
	}
}

// step runs all sequences once, or some of them, compares them, and lets some move.
func (w *twins) step() {
	var ids []uint64
	for _, id := range w.rng.Perm(12)[:6+w.rng.IntN(6)] {
		ids = append(ids, uint64(id))
	}
	w.run(w.stay, ids)
	var here [2][]uint64
	for _, id := range ids {
		here[w.at[id]] = append(here[w.at[id]], id)
	}
	w.run(w.stores[0], here[0])
	w.run(w.stores[1], here[1])
	for _, id := range ids {
		from := w.stores[w.at[id]]
		q := from.Live(number(id))
		want := saved(w.t, w.stay, w.stay.Live(number(id)))
		require.Equal(w.t, want, saved(w.t, from, q), "sequence %d, round %d", id, w.round)
		if w.rng.IntN(3) == 0 {
			w.move(q, id)
		}
	}
}

// move takes a Snapshot of a sequence, which another goroutine reads while others run, and
// restores it in the other store.
func (w *twins) move(q *Sequence, id uint64) {
	from := w.stores[w.at[id]]
	n, read := &Snapshot{}, make(chan *Saved)
	require.NoError(w.t, from.Snapshot(q, n))
	a := &Saved{Steps: q.Steps(), Totals: append([]uint64(nil), q.Totals()...)}
	go func() {
		for i, v := range n.Values() {
			value := SavedValue{v.DType, v.Shape.Clone(), make([]byte, n.parts[i].bytes)}
			n.CopyTo(i, value.Data)
			a.Values = append(a.Values, value)
		}
		n.Release()
		read <- a
	}()
	w.runs(from, []uint64{100 + id})
	from.End(number(id))
	w.runs(from, []uint64{100 + id})
	w.at[id] = 1 - w.at[id]
	_, err := w.stores[w.at[id]].Restore(number(id), 0, <-read, 1)
	require.NoError(w.t, err)
	from.End(number(100 + id))
}

// run steps sequences in as few runs as the store can.
func (w *twins) run(s *Store, ids []uint64) {
	for len(ids) > 0 {
		var group, rest []uint64
		for _, id := range ids {
			if len(group) < 3 && (len(group) == 0 || s.Compatible(s.Live(number(group[0])), s.Live(number(id)))) {
				group = append(group, id)
			} else {
				rest = append(rest, id)
			}
		}
		w.runs(s, group)
		ids = rest
	}
}

// runs is one run, whose model computes new values from the old ones and the round.
func (w *twins) runs(s *Store, ids []uint64) {
	lanes := make([]Lane, len(ids))
	for i, id := range ids {
		if lanes[i].Sequence = s.Touch(number(id), 1); lanes[i].Sequence == nil {
			lanes[i].Sequence = begin(w.t, s, number(id), 1)
		}
	}
	if order := s.Arrange(lanes); order != nil {
		inOrder, names := make([]Lane, len(lanes)), make([]uint64, len(ids))
		for i, lane := range order {
			inOrder[i], names[i] = lanes[lane], ids[lane]
		}
		lanes, ids = inOrder, names
	}
	step, err := s.Gather(lanes, len(lanes))
	require.NoError(w.t, err)
	for lane, id := range ids {
		for i := range s.states {
			st := &s.states[i]
			value := make([]byte, st.LaneBytes())
			st.TakeLane(value, step.In[i].Bytes, len(lanes), lane)
			for b := range value {
				value[b] = (value[b] + byte(w.round) + byte(id)) & 0x3f // as FP32, finite and in range of FP16 or tiny
			}
			st.PutLane(step.Out[i].Bytes, len(lanes), lane, value)
		}
	}
	for i := range step.Varying {
		w.write(&s.varying.states[i], &step.Varying[i], ids)
	}
	require.NoError(w.t, s.Commit(step, 1))
	for i, l := range lanes {
		l.Sequence.Add(0, ids[i])
	}
}

// write is what the model makes of a varying state in this round.
func (w *twins) write(v *Varying, io *VaryingIO, ids []uint64) {
	more := int64(1 + w.round%2)
	axis, kept := 2, int64(0) // of what was there
	switch {
	case v.LeftPadded:
		axis, kept = v.PadAxis, io.InShape[v.PadAxis]
	case v.Update == Append:
		axis = v.AppendAxis
	case v.Update == KeepIfEmpty && w.round%3 == 0:
		more = 0
	}
	io.OutShape = io.InShape.With(axis, kept+more)
	lane := io.OutShape.With(v.Axis, 1)
	before, after := kept*elements(lane[axis+1:]), lane[axis]*elements(lane[axis+1:])
	values := make([][]byte, len(ids))
	for i, id := range ids {
		values[i] = make([]byte, elements(lane))
		old := getLane(w.t, v, io.In, io.InShape, len(ids), i)
		for outer := range elements(lane[:axis]) {
			copy(values[i][outer*after:], old[outer*before:][:before])
			for b := before; b < after; b++ { // the same with and without padding
				values[i][outer*after+b] = byte(b-before) + byte(id) + byte(w.round)
			}
		}
	}
	io.Out = putBatched(w.t, v, lane, values)
}
