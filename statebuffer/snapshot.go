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
// Large values in place are not copied (pin.go), so a Snapshot should be released soon.
//
// The goroutine of the Store fills it. After that any goroutine may use it, one at a time or
// several, until Release.
type Snapshot struct {
	values []SnapshotValue
	parts  []part
	bytes  int64
	pin    *pin   // of the first values, or nil
	pinned int64  // bytes of these
	buffer []byte // of the others
}

// SnapshotValue describes the value of one state.
type SnapshotValue struct {
	Name  string
	DType tensor.DType // as it is stored
	Shape tensor.Shape // of one lane: 1 at the batch axis; borrowed
}

// part is where a value is among all values of a Snapshot, one after the other.
type part struct{ offset, bytes int64 }

// Values describes the values: those of the fixed states first, then of the varying ones,
// each in the order of Options. It is valid until Release.
func (n *Snapshot) Values() []SnapshotValue { return n.values }

// Bytes is the size of all values together.
func (n *Snapshot) Bytes() int64 { return n.bytes }

// CopyTo copies value i, as long as its shape and type say, in the order of its elements.
func (n *Snapshot) CopyTo(i int, to []byte) {
	p := n.parts[i]
	if p.offset < n.pinned {
		n.pin.copyTo(i, to[:p.bytes], p.offset)
		return
	}
	copy(to[:p.bytes], n.buffer[p.offset-n.pinned:])
}

// Release ends the use of the values, after all calls of CopyTo. The Snapshot can be filled
// again, and keeps its memory for that. Of an empty Snapshot it does nothing.
func (n *Snapshot) Release() {
	if n.pin != nil {
		n.pin.release()
	}
	clear(n.values) // shapes
	n.values, n.parts, n.bytes, n.pin, n.pinned = n.values[:0], n.parts[:0], 0, nil, 0
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
	to.Release()
	for i := range s.states {
		st := &s.states[i]
		to.add(SnapshotValue{st.Name, st.storedDType(), st.Shape}, st.StoredBytes())
	}
	fixed := to.bytes
	err := s.varying.describe(q, to)
	if err == nil {
		err = s.read(q, to, fixed)
	}
	if err != nil {
		to.Release()
	}
	return err
}

// read copies the values of a sequence to a Snapshot, or pins those of fixed shape, which
// have that many bytes.
func (s *Store) read(q *Sequence, to *Snapshot, fixed int64) error {
	if to.pin = s.placement.pin(q); to.pin != nil {
		to.pinned = fixed
	}
	copied := to.bytes - to.pinned
	to.buffer = slices.Grow(to.buffer[:0], int(copied))[:copied]
	if to.pin == nil {
		if err := s.placement.read(q, to.buffer[:fixed]); err != nil {
			return err
		}
	}
	return s.varying.read(q, to.buffer[fixed-to.pinned:])
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
