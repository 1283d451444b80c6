package statebuffer

import (
	"errors"
	"slices"

	"tritonstateful/internal/tensor"
)

// Snapshot has the values of a sequence as they were after one of its steps, for whoever
// stores them elsewhere while the sequence goes on. [Store.Snapshot] fills it. The zero
// Snapshot is empty; one that is used again allocates nothing, unless the values are larger.
//
// The goroutine of the Store fills it. After that any goroutine may use it, one at a time or
// several, until Release.
type Snapshot struct {
	values []SnapshotValue
	parts  []part
	bytes  int64
	buffer []byte
}

// SnapshotValue describes the value of one state.
type SnapshotValue struct {
	Name  string
	DType tensor.DType // as it is stored
	Shape tensor.Shape // of one lane: 1 at the batch axis; borrowed
}

// part is where a value lies in the buffer of a Snapshot.
type part struct{ offset, bytes int64 }

// Values describes the values: those of the fixed states first, then of the varying ones,
// each in the order of Options. It is valid until Release.
func (n *Snapshot) Values() []SnapshotValue { return n.values }

// Bytes is the size of all values together.
func (n *Snapshot) Bytes() int64 { return n.bytes }

// CopyTo copies value i, as long as its shape and type say, in the order of its elements.
func (n *Snapshot) CopyTo(i int, to []byte) {
	p := n.parts[i]
	copy(to[:p.bytes], n.buffer[p.offset:])
}

// Release ends the use of the values. The Snapshot can be filled again.
func (n *Snapshot) Release() { n.reset() }

func (n *Snapshot) reset() {
	clear(n.values) // shapes
	n.values, n.parts, n.bytes = n.values[:0], n.parts[:0], 0
}

// add describes the next value.
func (n *Snapshot) add(value SnapshotValue, bytes int64) {
	n.values = append(n.values, value)
	n.parts = append(n.parts, part{n.bytes, bytes})
	n.bytes += bytes
}

// Mistakes of the caller.
var errNoValue = errors.New("statebuffer: a sequence without a step has no values")

// Snapshot fills to with the values of a sequence after its last step. No step may be open.
// It fails for a sequence that has no values, because it has just begun or has lost
// its state, and if memory of a device cannot be read; to is empty then.
func (s *Store) Snapshot(q *Sequence, to *Snapshot) error {
	switch {
	case s.step.open:
		return errStepOpen
	case q.Generation() == 0 || q.fresh:
		return errNoValue
	}
	to.reset()
	for i := range s.states {
		st := &s.states[i]
		to.add(SnapshotValue{st.Name, st.storedDType(), st.Shape}, st.StoredBytes())
	}
	fixed := to.bytes
	if err := s.varying.describe(q, to); err != nil {
		return err
	}
	to.buffer = slices.Grow(to.buffer[:0], int(to.bytes))[:to.bytes]
	err := s.placement.read(q, to.buffer[:fixed])
	if err == nil {
		err = s.varying.read(q, to.buffer[fixed:])
	}
	if err != nil {
		to.reset()
	}
	return err
}

// describe adds the values of a sequence to a Snapshot.
func (s *varyingStore) describe(q *Sequence, to *Snapshot) error {
	for i := range s.states {
		v, shape := &s.states[i], q.values[i].shape
		bytes, err := shape.Bytes(v.DType)
		if err != nil {
			return err
		}
		to.add(SnapshotValue{v.Name, v.DType, shape}, bytes)
	}
	return nil
}

// read copies the values of a sequence, one after the other.
func (s *varyingStore) read(q *Sequence, to []byte) error {
	s.chunks = s.chunks[:0]
	for i := range s.states {
		shape := q.values[i].shape
		bytes, err := shape.Bytes(s.states[i].DType)
		if err != nil {
			return err
		}
		s.chunks = append(s.chunks, q.values[i].block.At(0, bytes))
	}
	return read(s.memory, to, s.chunks)
}
