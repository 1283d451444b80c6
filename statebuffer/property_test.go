package statebuffer

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
)

// TestStoreAgainstAPlainMap does thousands of random things to a Store and to a
// plain model of it, and compares them after each.
func TestStoreAgainstAPlainMap(t *testing.T) {
	for seed := range uint64(40) {
		for _, inPlace := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed %d, inPlace %v", seed, inPlace), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, seed, inPlace)
				require.Equal(t, inPlace, w.store.InPlace())
				for range 600 {
					w.step()
					w.check()
				}
				w.store.Close()
				require.Zero(t, w.memory.Used(), "bytes after Close")
			})
		}
	}
}

func (w *world) step() {
	w.now += time.Duration(w.rng.Int64N(int64(idle / 20)))
	switch dice := w.rng.IntN(100); {
	case dice < 60:
		w.batch()
	case dice < 69:
		k := w.anyKey()
		w.store.End(k)
		w.plain.end(k)
	case dice < 71:
		k := w.anyKey()
		w.store.Refuse(k, w.now)
		w.plain.refuse(k, w.now)
	case dice < 94:
		w.maintain()
	case dice < 97:
		w.now += time.Duration(w.rng.Int64N(int64(idle + restMargin)))
	default: // times when much ends, so that chunks empty
		for range w.rng.IntN(40) {
			k := w.anyKey()
			w.store.End(k)
			w.plain.end(k)
		}
	}
}

func (w *world) anyKey() Key { return w.keys[w.rng.IntN(len(w.keys))] }

// batch is what an instance does with a batch: touch all, find or begin, run. It may
// take long.
func (w *world) batch() {
	w.store.BeginBatch(w.now)
	batch := plainBatch{began: w.now}
	keys := w.requests()
	switch dice := w.rng.IntN(100); {
	case dice < 80:
		w.now += time.Duration(w.rng.Int64N(int64(idle / 20)))
	case dice < 98:
		w.now += time.Duration(w.rng.Int64N(int64(idle)))
	default:
		w.now += time.Duration(w.rng.Int64N(int64(2 * busyMargin)))
	}
	batch.ended = w.now
	require.Equal(w.t, w.plain.endBatch(batch, keys), w.store.EndBatch(w.now))
}

// requests are those of a batch, and whose they are.
func (w *world) requests() []Key {
	var keys []Key
	for range 1 + w.rng.IntN(w.lanes) {
		if k := w.anyKey(); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	for _, k := range keys {
		require.Equal(w.t, w.plain.touch(k, w.now), w.store.Touch(k, w.now) != nil)
	}
	var lanes []Lane
	var names []Key
	for _, k := range keys {
		q := w.admit(k)
		if q == nil && w.rng.IntN(4) > 0 {
			continue
		}
		if len(lanes) > 0 && !w.store.Compatible(lanes[0].Sequence, q) {
			require.False(w.t, w.compatible(names[0], k))
			continue
		}
		lanes = append(lanes, Lane{Sequence: q, End: w.rng.IntN(8) == 0})
		names = append(names, k)
	}
	if len(lanes) > 0 {
		lanes, names = w.arrange(lanes, names)
		w.run(lanes, names)
	}
	return keys
}

// arrange does as the store likes, mostly.
func (w *world) arrange(lanes []Lane, names []Key) (inOrder []Lane, keys []Key) {
	order := w.store.Arrange(lanes)
	if order == nil || w.rng.IntN(8) == 0 {
		return lanes, names
	}
	require.Len(w.t, order, len(lanes))
	for _, lane := range order {
		inOrder, keys = append(inOrder, lanes[lane]), append(keys, names[lane])
	}
	return inOrder, keys
}

func (w *world) admit(k Key) *Sequence {
	if w.rng.IntN(3) == 0 {
		q, err := w.store.Begin(k, w.now)
		if w.plain.begin(k, w.now) {
			require.NoError(w.t, err)
			return q
		}
		full := &FullError{}
		require.ErrorAs(w.t, err, &full)
		require.Equal(w.t, FullError{Live: len(w.plain.live), Total: w.plain.sizing.Total()}, *full)
		return nil
	}
	q, err := w.store.Continue(k, w.now)
	loss, known := w.plain.proceed(k, w.now)
	if known {
		require.NoError(w.t, err)
		return q
	}
	lost := &LostError{}
	require.ErrorAs(w.t, err, &lost)
	require.Equal(w.t, loss, lost.Reason)
	return nil
}

func (w *world) run(lanes []Lane, names []Key) {
	width := len(lanes) + w.rng.IntN(w.lanes-len(lanes)+1)
	dice := w.rng.IntN(20)
	if w.inPlace && (dice == 0 || dice == 3) { // what stays in place does not use the memory's copies
		dice = 4
	}
	if dice == 0 {
		w.memory.gather = errInjected
	}
	step, err := w.store.Gather(lanes, width)
	w.memory.gather = nil
	if dice == 0 {
		require.ErrorIs(w.t, err, errInjected)
		for _, l := range lanes {
			w.store.Fail(l, w.now)
		}
		w.failed(lanes, names)
		return
	}
	require.NoError(w.t, err)
	w.checkInputs(step, lanes, names, width)
	outputs := w.fillOutputs(step, len(lanes), width)
	shapes, varying := w.fillVarying(step, len(lanes), width)
	switch dice {
	case 1, 2:
		w.store.Abort(step, w.now)
		w.failed(lanes, names)
	case 5:
		w.store.Undo(step) // nothing has happened
	case 3:
		if w.tooLarge(shapes) {
			w.store.Abort(step, w.now)
			w.failed(lanes, names)
			return
		}
		w.memory.scatter = errInjected
		require.ErrorIs(w.t, w.store.Commit(step, w.now), errInjected)
		w.memory.scatter = nil
		for i, l := range lanes {
			if l.Sequence != nil {
				w.plain.revoke(names[i], Damaged, w.now)
			}
		}
		w.plain.counters.Saturated = w.store.counters.Saturated // half a scatter counts what it did
	default:
		w.commit(step, lanes, names, func() {
			w.committed(lanes, names, outputs)
			w.committedVarying(lanes, names, shapes, varying)
		}, shapes)
	}
}

// commit may find no memory for varying states, or that one is too large: then
// nothing has changed.
func (w *world) commit(step *Step, lanes []Lane, names []Key, committed func(), shapes []tensor.Shape) {
	if w.rng.IntN(6) == 0 {
		w.memory.alloc = errInjected
	}
	err := w.store.Commit(step, w.now)
	w.memory.alloc = nil
	grew := &GrewError{}
	switch {
	case errors.As(err, &grew):
		require.True(w.t, w.tooLarge(shapes))
		w.failed(lanes, names)
	case err != nil:
		require.ErrorIs(w.t, err, errInjected)
		w.failed(lanes, names)
	default:
		require.False(w.t, w.tooLarge(shapes))
		committed()
	}
}

func (w *world) failed(lanes []Lane, names []Key) {
	for i, l := range lanes {
		if l.Sequence != nil {
			w.plain.fail(names[i], l.End, w.now)
		}
	}
}

func (w *world) committed(lanes []Lane, names []Key, outputs [][][]byte) {
	for i, l := range lanes {
		switch {
		case l.Sequence == nil:
			continue
		case l.End:
			w.plain.end(names[i])
			continue
		}
		q := w.plain.live[names[i]]
		q.fresh, q.values = false, nil
		q.steps++
		for k := range w.states {
			value, clamped := w.kept(&w.states[k], outputs[k][i])
			q.values = append(q.values, value)
			w.plain.counters.Saturated += clamped
		}
	}
}

// laneOf copies a lane out of a batched tensor, or into it.
func laneOf(b Block, l Layout, lanes, lane int, move func(tensor, slot []byte)) {
	slot := make([]byte, l.PieceBytes)
	for x := range l.Pieces {
		at := (x*int64(lanes) + int64(lane)) * l.PieceBytes
		move(b.Bytes[at:at+l.PieceBytes], slot)
	}
}

func (w *world) checkInputs(step *Step, lanes []Lane, names []Key, width int) {
	w.checkVarying(step, lanes, names, width)
	for k := range w.states {
		s := &w.states[k]
		for lane := range width {
			want, _ := w.kept(s, s.Initial)
			if lane < len(lanes) && lanes[lane].Sequence != nil {
				if q := w.plain.live[names[lane]]; !q.fresh {
					want = q.values[k]
				}
			}
			var got []byte
			laneOf(step.In[k], s.Layout, width, lane, func(tensor, _ []byte) { got = append(got, tensor...) })
			if !bytes.Equal(want, got) {
				require.Equal(w.t, want, got, "%s, lane %d of %d", s.Name, lane, width)
			}
		}
	}
}

// fillOutputs stands in for the model; [state][lane] is what it wrote.
func (w *world) fillOutputs(step *Step, lanes, width int) [][][]byte {
	outputs := make([][][]byte, len(w.states))
	for k := range w.states {
		s := &w.states[k]
		for lane := range width {
			value := w.values(s)
			rest := value
			laneOf(step.Out[k], s.Layout, width, lane, func(tensor, _ []byte) { rest = rest[copy(tensor, rest):] })
			if lane < lanes {
				outputs[k] = append(outputs[k], value)
			}
		}
	}
	return outputs
}

func (w *world) maintain() {
	want := w.plain.maintain()
	values := 0 // in the last chunk
	if w.inPlace {
		values = valuesInLast(w.store)
	}
	fails := want > 0 && w.rng.IntN(3) == 0
	if fails {
		w.memory.alloc = errInjected
	}
	change, err := w.store.Maintain(func() time.Duration { return w.now })
	w.memory.alloc = nil
	switch {
	case want > 0 && w.now < w.retry:
		require.NoError(w.t, err)
		want = 0
	case fails:
		require.ErrorIs(w.t, err, errInjected)
		w.waits = min(max(2*w.waits, firstBackoff), lastBackoff)
		w.retry = w.now + w.waits
		want = 0
	case want > 0:
		w.plain.slots.grow(w.plain.sizing.Subsequent)
		w.waits = 0
	case want < 0 && w.inPlace && !change.Shrunk && values <= w.drains:
		require.Zero(w.t, valuesInLast(w.store))
		require.NotZero(w.t, inPlaceOf(w.store).pool.last().pinned, "what keeps the chunk")
		want = 0
	case want < 0 && w.inPlace && values > w.drains:
		require.Equal(w.t, values-w.drains, valuesInLast(w.store), "of the chunk that is to be freed")
		want = 0
	case want < 0:
		w.plain.slots = w.plain.slots[:len(w.plain.slots)-1]
	}
	require.Equal(w.t, Change{Grown: want > 0, Shrunk: want < 0}, change)
}
