package statebuffer

import (
	"fmt"
	"slices"

	"tritonstateful/internal/tensor"
)

// Sequences whose values differ in length share a run if Varying.LeftPadded: the
// shorter ones are preceded by zeros up to the longest, a mask that the caller
// makes says what counts, and what the model wrote after those zeros becomes the new
// value. So the padding never becomes part of a value.
//
// It needs memory that the host can address, and a model that appends: from one that
// drops what is old, the zeros of a shorter value would have pushed out its own. The
// caller looks after that before Commit, see VaryingIO.Uneven. In a device's memory
// sequences of unequal length run separately.

// padable returns the states, none of them left-padded where the memory does not allow it.
func padable(states []Varying, m Memory) []Varying {
	if _, device := m.(Uploader); !device {
		return states
	}
	states = slices.Clone(states)
	disableLeftPadding(states)
	return states
}

func disableLeftPadding(states []Varying) {
	for i := range states {
		states[i].LeftPadded = false
	}
}

// DisableLeftPadding makes sequences Compatible only if their values have equal lengths,
// from now on. No step may be open.
func (s *Store) DisableLeftPadding() { disableLeftPadding(s.varying.states) }

// Length is the extent that the value of a padded state has for the next step of
// a sequence; nil is a sequence that starts. state counts in Options.Varying.
func (s *Store) Length(state int, q *Sequence) int64 {
	return s.varying.shape(state, q)[s.varying.states[state].PadAxis]
}

// LengthBytes is what a padded state takes, in a lane of a sequence, for each unit of
// its length.
func (s *Store) LengthBytes(state int, q *Sequence) int64 {
	v := &s.varying.states[state]
	shape, axis := s.varying.shape(state, q), v.PadAxis
	return elements(shape[:axis]) * elements(shape[axis+1:]) * int64(v.DType.Size())
}

// FitsBudget reports whether the limit of memory leaves room for that many bytes of padded
// tensors next to what sequences hold.
func (s *Store) FitsBudget(bytes int64) bool { return s.fits(bytes) }

// longest is the shape of the longest value among the lanes; uneven reports whether
// others are shorter.
func (s *varyingStore) longest(i int, lanes []Lane) (shape tensor.Shape, uneven bool) {
	shape = s.shape(i, lanes[0].Sequence)
	axis := s.states[i].PadAxis
	for _, l := range lanes[1:] {
		other := s.shape(i, l.Sequence)
		uneven = uneven || s.states[i].LeftPadded && other[axis] != shape[axis]
		if s.states[i].LeftPadded && other[axis] > shape[axis] {
			shape = other
		}
	}
	return shape, uneven
}

// gatherPadded lays out values of unequal length, each at the end of its lane.
func (s *varyingStore) gatherPadded(i int, t *Transfer, lanes []Lane, longest tensor.Shape) error {
	v := &s.states[i]
	padded, err := s.paddedValue(v, longest)
	if err != nil {
		return err
	}
	for lane, l := range lanes {
		shape := s.shape(i, l.Sequence)
		clear(padded)
		v.shift(padded, longest, s.source(i, l.Sequence).Bytes, shape, shape)
		t.gatherLane(lane, padded)
	}
	clear(padded)
	for lane := len(lanes); lane < t.Lanes; lane++ {
		t.gatherLane(lane, padded)
	}
	return nil
}

// ownLength is how long the new value of a padded state is for a lane's sequence: it is
// shorter than the longest by as much as the old value was.
func (s *varyingStore) ownLength(i int, q *Sequence) int64 {
	axis, io := s.states[i].PadAxis, &s.io[i]
	return io.OutShape[axis] - io.InShape[axis] + s.shape(i, q)[axis]
}

// ownBytes is the size of the new value of a lane's sequence, without the padding that
// written, the size of what the model wrote for one lane, has.
func (s *varyingStore) ownBytes(i int, q *Sequence, written int64) int64 {
	v := &s.states[i]
	if !s.io[i].Uneven || written == 0 {
		return written
	}
	return written / s.io[i].OutShape[v.PadAxis] * s.ownLength(i, q)
}

// reservePadded makes room for the value that commitPadded needs.
func (s *varyingStore) reservePadded(i int) error {
	v, io := &s.states[i], &s.io[i]
	if !io.Uneven {
		return nil
	}
	_, err := s.paddedValue(v, io.OutShape.With(v.Axis, 1))
	return err
}

// commitPadded takes from each lane what is not padding.
func (s *varyingStore) commitPadded(i int, lanes []Lane, width int) error {
	v, io := &s.states[i], &s.io[i]
	axis := v.PadAxis
	out := io.OutShape.With(v.Axis, 1)
	layout, err := v.layout(out)
	if err != nil {
		return err
	}
	t := Transfer{Layout: layout, Tensor: io.Out, Lanes: width}
	padded, err := s.paddedValue(v, out)
	if err != nil {
		return err
	}
	for lane, l := range lanes {
		if !l.commits() {
			continue
		}
		t.scatterLane(lane, padded)
		shape := out.With(axis, s.ownLength(i, l.Sequence))
		v.shift(l.Sequence.values[i].block.Bytes, shape, padded, out, shape)
		l.Sequence.values[i].shape = shape
	}
	return nil
}

// checkPadded makes sure that each value is at least as long as it was, so that no
// length is below zero.
func (v *Varying) checkPadded(io *VaryingIO) error {
	axis := v.PadAxis
	if io.Uneven && io.OutShape[axis] < io.InShape[axis] {
		return fmt.Errorf("state %q: the model wrote length %d for one of %d, of which some are padded: a state that is padded must not get shorter", v.Name, io.OutShape[axis], io.InShape[axis])
	}
	return nil
}

// shift copies the last part of a value to the end of another: shapes to and from
// differ only in their lengths, and part is the shape of what is copied.
func (v *Varying) shift(to []byte, toShape tensor.Shape, from []byte, fromShape, part tensor.Shape) {
	axis := v.PadAxis
	unit := elements(part[axis+1:]) * int64(v.DType.Size())
	layout := Layout{Pieces: elements(part[:axis]), PieceBytes: part[axis] * unit}
	if layout.LaneBytes() == 0 {
		return
	}
	toPiece, fromPiece := toShape[axis]*unit, fromShape[axis]*unit
	layout.copyPieces(to[toPiece-layout.PieceBytes:], toPiece, from[fromPiece-layout.PieceBytes:], fromPiece)
}

// paddedValue is room for one lane of that shape; what is in it does not count.
func (s *varyingStore) paddedValue(v *Varying, shape tensor.Shape) ([]byte, error) {
	bytes, err := shape.Bytes(v.DType)
	if err != nil {
		return nil, err
	}
	if err := s.value.Reserve(s.memory, bytes); err != nil {
		return nil, fmt.Errorf("state %q: a padded value: %w", v.Name, err)
	}
	return s.value.Bytes[:bytes], nil
}
