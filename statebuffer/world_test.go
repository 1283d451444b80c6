package statebuffer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
)

// flaky is a Memory that fails when told to.
type flaky struct {
	Heap
	alloc, gather, scatter error
}

func (f *flaky) Alloc(bytes int64) (Block, error) {
	if f.alloc != nil {
		return Block{}, f.alloc
	}
	return f.Heap.Alloc(bytes)
}

func (f *flaky) Gather(t []Transfer) error {
	if f.gather != nil {
		return f.gather
	}
	return f.Heap.Gather(t)
}

// Scatter leaves half a work when it fails.
func (f *flaky) Scatter(t []Transfer) error {
	if f.scatter != nil {
		return errors.Join(f.Heap.Scatter(t[:len(t)/2]), f.scatter)
	}
	return f.Heap.Scatter(t)
}

var errInjected = errors.New("injected")

// world is a Store, a naive store of the same values, and a source of random numbers.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	memory  *flaky
	store   *Store
	plain   *plainStore
	states  []State
	vary    []Varying
	lanes   int // largest batch
	now     time.Duration
	retry   time.Duration // no chunk is allocated before
	waits   time.Duration
	keys    []Key
	inPlace bool // values stay where runs wrote them
	saver   saver
	drains  int // how many of these leave a chunk that is to be freed at a time
}

const idle = time.Second

func newWorld(t *testing.T, seed uint64, inPlace bool) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 7)), memory: &flaky{}, now: time.Hour, inPlace: inPlace}
	w.lanes = 1 + w.rng.IntN(6)
	for i := range 1 + w.rng.IntN(3) {
		w.states = append(w.states, w.randomState(i))
		if inPlace {
			w.states[i].Convert = Same
			w.states[i].Pieces = max(1, w.states[i].Pieces*int64(seed%2))
			w.states[i].Shape[0] = w.states[i].Pieces
			w.states[i].Initial = nil
			if w.rng.IntN(2) == 0 {
				w.states[i].Initial = w.values(&w.states[i])
			}
		}
	}
	if seed%3 == 1 {
		w.vary = []Varying{w.randomVarying(0), w.randomVarying(1)}[:1+w.rng.IntN(2)]
	}
	sizing, err := NewSizing(20+w.rng.IntN(60), w.lanes, 0.9, &LazyBuffers{
		Initial: w.lanes + w.rng.IntN(6), Subsequent: w.lanes + w.rng.IntN(4), AllocThreshold: w.lanes, DeallocThreshold: w.lanes + w.rng.IntN(12),
	})
	require.NoError(t, err)
	if seed%4 == 0 {
		sizing.MaxChunks = 1
	}
	if seed%8 == 4 { // fewer slots than a batch has lanes
		sizing.Initial = 1 + w.rng.IntN(w.lanes)
	}
	limits := Limits{Idle: idle, Full: Policy(seed % 2), Tombstones: w.rng.IntN(30)}
	w.plain = newPlainStore(sizing, limits)
	inPlaceFrom := int64(-1)
	if inPlace {
		inPlaceFrom = 1
	}
	w.store, err = NewStore(Options{Memory: w.memory, States: w.states, Varying: w.vary, Sizing: sizing, Limits: limits, MaxLanes: w.lanes, inPlaceFrom: inPlaceFrom})
	require.NoError(t, err)
	if inPlace {
		w.drains = 1 + int(seed%3)
		pins := &inPlaceOf(w.store).pins
		if pins.from = 1; seed%2 == 0 {
			pins.share = 1 // all cells may be pinned
		}
		inPlaceOf(w.store).drainBytes = int64(w.drains)*w.store.SlotBytes() - int64(seed%2)
	}
	for i := range uint64(2 * sizing.Total()) {
		k := Key{Number: i}
		if i%3 == 0 {
			k = Key{Text: fmt.Sprint("sequence ", i)}
		}
		w.keys = append(w.keys, k)
	}
	return w
}

func (w *world) randomState(i int) State {
	s := State{Name: fmt.Sprint("state ", i), Layout: Layout{Pieces: 1 + w.rng.Int64N(4), PieceBytes: 1 + w.rng.Int64N(21)}}
	s.DType, s.Shape = tensor.Int8, tensor.Shape{s.Pieces, 1, s.PieceBytes}
	if w.rng.IntN(3) == 0 {
		s.Convert, s.PieceBytes = Half, 4*(1+w.rng.Int64N(5))
		s.DType, s.Shape = tensor.FP32, tensor.Shape{s.Pieces, 1, s.PieceBytes / 4}
	}
	if w.rng.IntN(2) == 0 {
		s.Initial = w.values(&s)
	}
	return s
}

// values are random contents of a state, as a model would write them.
func (w *world) values(s *State) []byte {
	b := make([]byte, s.LaneBytes())
	for i := range b {
		b[i] = byte(w.rng.Uint32())
	}
	if s.Convert == Half {
		for i := 0; i < len(b); i += 4 {
			binary.NativeEndian.PutUint32(b[i:], math.Float32bits(float32(w.rng.NormFloat64()*50_000)))
		}
	}
	return b
}

// kept is what a state becomes by being stored.
func (w *world) kept(s *State, value []byte) (kept []byte, clamped uint64) {
	switch {
	case value == nil:
		return make([]byte, s.LaneBytes()), 0
	case s.Convert == Same:
		return value, 0
	}
	half, kept := make([]byte, len(value)/2), make([]byte, len(value))
	clamped = tensor.Halves(half, value)
	tensor.Widens(kept, half)
	return kept, clamped
}

// check compares everything.
func (w *world) check() {
	w.t.Helper()
	s, p := w.store, w.plain
	p.slots.requireEqual(w.t, &s.slots)
	u := s.Usage()
	require.Equal(w.t, p.counters, s.Counters())
	require.Equal(w.t, len(p.live), u.Live)
	require.Equal(w.t, len(p.slots), u.Chunks)
	require.Equal(w.t, s.slots.free+s.live.len, u.Slots)
	require.Equal(w.t, int64(u.Slots)*s.SlotBytes()+w.varyingBytes(), u.Bytes)
	require.Equal(w.t, len(p.live)+len(p.tombstones), len(s.byNumber)+len(s.byText), "the index holds the live and the lost, no more")
	require.Equal(w.t, len(p.tombstones), s.tombstones.len)
	owners := map[Slot]Key{}
	n := 0
	for q := s.live.first; q != nil; q = q.next {
		n++
		want, ok := p.live[q.key()]
		require.True(w.t, ok, "%v is not live", q.key())
		require.Same(w.t, q, s.find(q.key()))
		require.Equal(w.t, want.slot, q.slot)
		require.NotContains(w.t, owners, q.slot, "two owners of a slot")
		owners[q.slot] = q.key()
		if want.fresh != q.fresh || want.steps != q.Steps() || want.lastUse != q.lastUse {
			w.t.Fatalf("%v is %+v: want %+v", q.key(), q, want)
		}
		w.checkStored(q, want)
	}
	require.Equal(w.t, s.live.len, n)
	if w.inPlace {
		w.checkSlabs()
		return
	}
	w.checkWiped(owners)
}

// checkWiped: no byte of a sequence is left in a slot without an owner.
func (w *world) checkWiped(owners map[Slot]Key) {
	for k := range w.states {
		bytes := w.states[k].StoredBytes()
		for chunk, block := range w.store.chunks[k] {
			for index := range block.Size / bytes {
				if _, owned := owners[Slot{int32(chunk), int32(index)}]; owned {
					continue
				}
				for _, b := range block.Bytes[index*bytes : (index+1)*bytes] {
					if b != 0 {
						w.t.Fatalf("slot %d of chunk %d is free and not zero", index, chunk)
					}
				}
			}
		}
	}
}

// stored is the value of state k as it lies in the store.
func (w *world) stored(q *Sequence, k int) []byte {
	s := &w.states[k]
	if !w.inPlace {
		return w.store.chunks[k][q.slot.Chunk].At(int64(q.slot.Index)*s.StoredBytes(), s.StoredBytes()).Bytes
	}
	value := make([]byte, s.LaneBytes())
	tensor, lanes, lane := q.slab.lane(k, q.cell())
	s.TakeLane(value, tensor, lanes, lane)
	return value
}

func (w *world) checkStored(q *Sequence, want *plainSequence) {
	if q.fresh {
		require.Empty(w.t, q.values, "values that are not read any more")
		return
	}
	for k := range w.states {
		s := &w.states[k]
		got := w.stored(q, k)
		if s.Convert == Half {
			wide := make([]byte, s.LaneBytes())
			tensor.Widens(wide, got)
			got = wide
		}
		if !bytes.Equal(want.values[k], got) {
			require.Equal(w.t, want.values[k], got, "%s of %v", s.Name, q.key())
		}
	}
}
