package backend

import (
	"slices"
	"strings"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// mask is mask(STATES) or mask(STATES, INPUT), where INPUT may be followed by a colon
// and an axis. Naming one is what allows sequences
// of unequal length to share a run.
func (w *wirer) mask(f *fillWire, info *onnx.TensorInfo, argument string) (err error) {
	f.kind = fillMask
	if err = w.fillAxis(f, info); err != nil {
		return err
	}
	m := &maskWire{length: -1}
	if m.axis, err = lengthAxis(f, info); err != nil {
		return err
	}
	if f.axis == tensor.NoAxis {
		return errLengthAxis(info)
	}
	states, input, _ := strings.Cut(argument, ",")
	m.states = strings.TrimSpace(states)
	for i, word := range []string{"0", "1"} {
		if f.value[i], err = parseElement(word, f.dtype); err != nil {
			return err
		}
	}
	if strings.TrimSpace(input) != "" {
		if m.length, err = w.lengthOf(input); err != nil {
			return err
		}
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
		for j := range w.wiring.varying {
			s := &w.wiring.varying[j]
			if _, ok := config.MatchPattern(m.states, s.input); !ok {
				continue
			}
			m.covers = append(m.covers, j)
			w.pad(s, j)
		}
		w.wiring.masks = append(w.wiring.masks, i)
		if len(m.covers) == 0 {
			w.fault("parameter derived_inputs: input %q: mask(%s) names no state that grows", w.wiring.fills[i].name, m.states)
		}
	}
}

// pad marks a state as one whose sequences may share a run at unequal length.
func (w *wirer) pad(s *stateWire, at int) {
	s.padAxis = tensor.NoAxis
	for axis, d := range s.dims {
		if d < 0 && axis != s.axis && s.padAxis != tensor.NoAxis {
			w.fault("state %q: its shape %v has several dynamic axes: a mask needs one, its length", s.input, s.dims)
			return
		}
		if d < 0 && axis != s.axis {
			s.padAxis = axis
		}
	}
	s.padded = true
	if slices.ContainsFunc(w.wiring.lengths, func(l lengthSource) bool { return l.output && l.at == s.out }) {
		w.fault("parameter derived_inputs: output %q is that of a state that is padded for a mask: its length has padding in it; take that of an input", s.output)
	}
	if s.update != statebuffer.Replace {
		w.fault("state %q: a mask pads it, and state_updates says %s: a mask is for models that write the whole state; leave one out", s.input, s.rule())
	}
	if slices.ContainsFunc(w.wiring.outputs, func(p port) bool { return p.stateOut && p.state == len(w.wiring.states)+at }) {
		w.fault("state %q is listed in output and also padded for a mask: answers would hold padding; leave one out", s.input)
	}
}
