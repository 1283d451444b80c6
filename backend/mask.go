package backend

import (
	"fmt"
	"slices"
	"strings"
)

// maskWire is what a mask tells of: for each lane 0 where the states are padding,
// and 1 for what is theirs and for this step's part of an input, if one is named.
type maskWire struct {
	states, input string // names; that of the states may be a pattern
	axis          int    // of the mask's own length
	state         int    // position in wiring.varying of the first
	length        int    // position in wiring.lengths, or -1
}

// mask is mask(STATES) or mask(STATES, INPUT). Naming one is what allows sequences
// of unequal length to share a run.
func (w *wirer) mask(f *fillWire, info *TensorInfo, argument string) (err error) {
	f.kind = fillMask
	if f.axis, _, err = w.tensorAxis(info); err != nil {
		return err
	}
	m := &maskWire{axis: noAxis, length: -1}
	f.dims = info.Dims.Clone()
	for i, d := range f.dims {
		switch {
		case i == f.axis:
		case d < 0 && m.axis == noAxis:
			m.axis = i
		case d != 1:
			return fmt.Errorf("its shape in the model is %v: want a batch axis and behind it one dynamic axis, such as [-1,-1]", info.Dims)
		}
	}
	if f.axis == noAxis || m.axis < f.axis {
		return fmt.Errorf("its shape in the model is %v: want a batch axis and behind it one dynamic axis, such as [-1,-1]", info.Dims)
	}
	states, input, _ := strings.Cut(argument, ",")
	m.states, m.input = strings.TrimSpace(states), strings.TrimSpace(input)
	for i, word := range []string{"0", "1"} {
		if f.value[i], err = parseElement(word, f.dtype); err != nil {
			return err
		}
	}
	if m.input != "" {
		m.length = w.lengthOf(lengthSource{name: m.input, axis: noAxis})
	}
	f.mask = m
	w.wiring.varies = true
	return nil
}

// resolveMasks finds the states of masks, once all are wired, and makes them
// padded.
func (w *wirer) resolveMasks() {
	for i := range w.wiring.fills {
		m := w.wiring.fills[i].mask
		if m == nil {
			continue
		}
		m.state = -1
		for j := range w.wiring.varying {
			s := &w.wiring.varying[j]
			if _, ok := matchPattern(m.states, s.input); !ok {
				continue
			}
			if m.state < 0 {
				m.state = j
			}
			w.pad(s, j)
		}
		if m.state < 0 {
			w.fault("parameter derived_inputs: input %q: mask(%s) names no state that grows", w.wiring.fills[i].name, m.states)
		}
	}
}

// pad marks a state as one whose sequences may share a run at unequal length.
func (w *wirer) pad(s *stateWire, at int) {
	s.padAxis = noAxis
	for axis, d := range s.dims {
		if d < 0 && axis != s.axis && s.padAxis != noAxis {
			w.fault("state %q: its shape %v has several dynamic axes: a mask needs one, its length", s.input, s.dims)
			return
		}
		if d < 0 && axis != s.axis {
			s.padAxis = axis
		}
	}
	s.padded = true
	if slices.ContainsFunc(w.wiring.outputs, func(p port) bool { return p.stateOut && p.state == len(w.wiring.states)+at }) {
		w.fault("state %q is listed in output and also padded for a mask: answers would hold padding; leave one out", s.input)
	}
}

// putMask writes a mask.
func (x *execution) putMask(i int) error {
	in := x.in
	f := &in.wiring.fills[i]
	m := f.mask
	var longest, step int64
	for _, l := range x.lanes {
		longest = max(longest, in.store.Length(m.state, l.Sequence))
	}
	if m.length >= 0 {
		step = int64(x.lengths[m.length])
	}
	element := int64(f.dtype.Size())
	width := longest + step
	lanes := int64(x.stage.lanes)
	buffer := &in.io.fills[i]
	if err := in.io.reserve(buffer, lanes*width*element); err != nil {
		return err
	}
	to := buffer.Bytes
	for lane := range x.stage.lanes {
		padding := int64(0) // a padding lane has a whole value
		if lane < len(x.lanes) {
			padding = longest - in.store.Length(m.state, x.lanes[lane].Sequence)
		}
		for at := range width {
			copy(to, f.value[index(at >= padding)])
			to = to[element:]
		}
	}
	shape := f.dims.With(f.axis, lanes)
	shape[m.axis] = width
	x.stage.inputs[f.at] = Tensor{Data: buffer.At(0, lanes*width*element), DType: f.dtype, Shape: shape}
	return nil
}

// overflows tells whether a run wrote too much for some sequence, for which the
// others of the run must not fail: where sequences of unequal length share a run.
func (x *execution) overflows() bool {
	if len(x.rows) < 2 || x.alone || x.in.store.TooLong(x.step) == nil {
		return false
	}
	return slices.ContainsFunc(x.in.wiring.varying, func(s stateWire) bool { return s.padded })
}

// part gives the rows of a run that overflows back to the pending ones, to run one
// by one. It is false when there is nothing to part.
func (x *execution) part() bool {
	if !x.overflows() {
		return false
	}
	x.in.store.Undo(x.step)
	x.step, x.alone = nil, true
	x.pending = slices.Insert(x.pending, 0, x.rows...)
	x.rows, x.first, x.laneRow, x.lanes = x.rows[:0], x.first[:0], x.laneRow[:0], x.lanes[:0]
	return true
}
