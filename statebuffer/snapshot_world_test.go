package statebuffer

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
)

// archived is a sequence of a world, as another goroutine read it from a Snapshot, and as
// the plain store had it at that moment.
type archived struct {
	saved Saved
	want  plainSequence
}

// pending is a Snapshot that is being read.
type pending struct {
	want  plainSequence
	start chan bool // closed when it may begin
	saved chan Saved
}

// saver takes snapshots in a world and restores them there, or in another one of the same
// states.
type saver struct {
	free    []*Snapshot // that have been released
	pending []pending
	archive *[]archived
}

// TestSnapshotsAgainstAPlainMap is TestStoreAgainstAPlainMap with snapshots at any moment,
// which another goroutine reads while steps run. What was read continues under any key, in
// either of two stores.
func TestSnapshotsAgainstAPlainMap(t *testing.T) {
	for seed := range uint64(12) {
		for _, inPlace := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed %d, inPlace %v", seed, inPlace), func(t *testing.T) {
				t.Parallel()
				var archive []archived
				var worlds [2]*world
				for i := range worlds {
					w := newWorld(t, seed, inPlace)
					w.saver.archive, w.rng = &archive, rand.New(rand.NewPCG(seed, uint64(i)))
					worlds[i] = w
				}
				for i := range 400 {
					w := worlds[i%2]
					w.step()
					w.save()
					w.check()
				}
				for _, w := range worlds {
					w.store.Close()
					w.collect(0)
					require.Zero(t, w.memory.Used(), "bytes after Close")
				}
				require.Greater(t, len(archive), 20)
			})
		}
	}
}

// save does something with snapshots.
func (w *world) save() {
	switch w.rng.IntN(4) {
	case 0:
		w.snapshot()
	case 1:
		w.collect(w.rng.IntN(20))
	case 2:
		w.restore()
	}
}

// snapshot has another goroutine read a sequence.
func (w *world) snapshot() {
	q := w.store.live.first
	for range w.rng.IntN(w.store.live.len + 1) {
		q = q.next
	}
	to := &Snapshot{}
	if n := len(w.saver.free); n > 0 {
		to, w.saver.free = w.saver.free[n-1], w.saver.free[:n-1]
	}
	if q == nil {
		return
	}
	want := *w.plain.live[q.key()]
	err := w.store.Snapshot(q, to)
	if want.fresh {
		require.ErrorIs(w.t, err, errNoValue)
		return
	}
	require.NoError(w.t, err)
	w.saver.free = slices.DeleteFunc(w.saver.free, func(n *Snapshot) bool { return n == to })
	w.checkDescribed(to, &want)
	p := pending{want, make(chan bool), make(chan Saved, 1)}
	if w.rng.IntN(2) == 0 {
		close(p.start)
	}
	steps, waits := q.Steps(), w.rng.IntN(50)
	go func() {
		saved := Saved{Steps: steps, Totals: []uint64{steps, 7}}
		<-p.start
		for i, v := range to.Values() {
			for range waits {
				runtime.Gosched()
			}
			value := SavedValue{DType: v.DType, Shape: v.Shape.Clone(), Data: make([]byte, to.parts[i].bytes)}
			to.CopyTo(i, value.Data)
			saved.Values = append(saved.Values, value)
		}
		to.Release()
		p.saved <- saved
	}()
	w.saver.pending = append(w.saver.pending, p)
}

func (w *world) checkDescribed(n *Snapshot, want *plainSequence) {
	require.Len(w.t, n.Values(), len(w.states)+len(w.vary))
	bytes := int64(0)
	for i, v := range n.Values() {
		if i >= len(w.states) {
			vary := &w.vary[i-len(w.states)]
			require.Equal(w.t, SnapshotValue{vary.Name, vary.DType, want.varying[i-len(w.states)].shape}, v)
			bytes += int64(len(want.varying[i-len(w.states)].value))
			continue
		}
		st := &w.states[i]
		dtype := map[Conversion]tensor.DType{Same: st.DType, Half: tensor.FP16}[st.Convert]
		require.Equal(w.t, SnapshotValue{st.Name, dtype, st.Shape}, v)
		bytes += st.StoredBytes()
	}
	require.Equal(w.t, bytes, n.Bytes())
}

// collect waits until no more than that many snapshots are being read.
func (w *world) collect(left int) {
	for len(w.saver.pending) > left {
		p := w.saver.pending[0]
		w.saver.pending = w.saver.pending[1:]
		select {
		case <-p.start:
		default:
			close(p.start)
		}
		a := archived{<-p.saved, p.want}
		for i, value := range a.saved.Values {
			if i >= len(w.states) {
				require.Equal(w.t, p.want.varying[i-len(w.states)], plainVarying{value.Shape, value.Data})
				continue
			}
			got := value.Data
			if w.states[i].Convert == Half {
				got = make([]byte, 2*len(value.Data))
				tensor.Widens(got, value.Data)
			}
			require.Equal(w.t, p.want.values[i], got)
		}
		*w.saver.archive = append(*w.saver.archive, a)
	}
}

// restore continues a sequence of the archive under any key. What is not of these states is
// refused, and nothing is left when memory is.
func (w *world) restore() {
	if len(*w.saver.archive) == 0 {
		return
	}
	a, k := (*w.saver.archive)[w.rng.IntN(len(*w.saver.archive))], w.anyKey()
	dice := w.rng.IntN(12)
	w.store.BeginBatch(w.now)
	defer func() {
		require.Equal(w.t, w.plain.endBatch(plainBatch{w.now, w.now}, []Key{k}), w.store.EndBatch(w.now))
	}()
	if dice == 0 {
		w.restoreOther(k, a)
		return
	}
	if dice == 1 {
		w.memory.alloc = errInjected
	}
	q, err := w.store.Restore(k, 0, &a.saved, w.now)
	w.memory.alloc = nil
	if !w.plain.begin(k, w.now) {
		full := &FullError{}
		require.ErrorAs(w.t, err, &full)
		return
	}
	if err != nil {
		require.Equal(w.t, 1, dice)
		require.ErrorIs(w.t, err, errInjected)
		w.plain.revoke(k, StartFailed, w.now)
		w.plain.counters.StartFailures++
		return
	}
	p := w.plain.live[k]
	p.fresh, p.steps, p.values, p.varying = false, a.want.steps, a.want.values, a.want.varying
	require.Equal(w.t, []uint64{a.want.steps, 7}, q.Totals())
	require.Equal(w.t, uint64(7), q.Total(1))
	require.NotZero(w.t, q.Generation())
}

func (w *world) restoreOther(k Key, a archived) {
	saved := a.saved
	saved.Values = slices.Clone(saved.Values)
	which := w.rng.IntN(len(saved.Values))
	value := &saved.Values[which]
	switch w.rng.IntN(4) {
	case 0:
		saved.Values = saved.Values[1:]
	case 1:
		value.DType = tensor.Bool
	case 2:
		value.Shape = append(value.Shape.Clone(), 1)
	case 3:
		value.Data = append(slices.Clone(value.Data), 0)
	}
	_, err := w.store.Restore(k, 0, &saved, w.now)
	mismatch := &MismatchError{}
	require.ErrorAs(w.t, err, &mismatch)
	w.plain.refuse(k, w.now)
}
