package backend

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// wireApart wires the model. Where a batch axis was not told by a name or by the
// configuration, runs show whether the lanes of a batch are apart: an axis of time
// that is taken for the batch would let sequences read each other. If they are not,
// the names that the model gives have misled, and runs alone decide.
func (m *Model) wireApart(r Runner) (*wiring, error) {
	files := initialFiles(m.info.Directory)
	w, err := wire(m.config, m.params, nameBatch(r), files)
	if err != nil || !w.guessed || w.maxLanes == 1 {
		return w, err
	}
	host, err := m.onHost(r)
	if err != nil {
		m.log.Warn("nobody has checked that the lanes of a batch are apart: the CPU cannot open the model; batch_axes can say what is sure", "error", err)
		return w, nil
	}
	if host != r {
		defer host.Close()
	}
	leak := w.leak(host)
	if leak == "" {
		return w, nil
	}
	if sig := batchByRuns(host, withoutNames(host.Signature())); sig != nil {
		if other, err := wire(m.config, m.params, sig, files); err == nil && other.leak(host) == "" {
			return other, nil
		}
	}
	return nil, Errorf(InvalidArg, "requests of one batch would not be apart: %s, with the batch at %s: say where it is by the parameter batch_axes (\"NAME = AXIS\" or \"NAME = none\" for each tensor)", leak, w.batchAxes())
}

// onHost is a runner whose memory the host can write: the same, or one for the CPU.
func (m *Model) onHost(r Runner) (Runner, error) {
	if _, device := r.(DeviceRunner); !device {
		return r, nil
	}
	return m.host.Open(SessionOptions{Path: m.path, Name: "checks the batch axes", IntraOpThreads: 1})
}

// batchAxes lists the axes of the inputs that are taken for the batch.
func (w *wiring) batchAxes() string {
	var texts []string
	for _, p := range w.inputs {
		texts = append(texts, axisText(p.Name, p.axis))
	}
	for _, states := range [][]stateWire{w.states, w.varying} {
		for _, s := range states {
			texts = append(texts, axisText(s.input, s.axis))
		}
	}
	return strings.Join(texts, ", ")
}

func axisText(name string, axis int) string {
	if axis == noAxis {
		return fmt.Sprintf("no axis of %q", name)
	}
	return fmt.Sprintf("axis %d of %q", axis, name)
}

// trial is a run of two lanes to which other contents can be given.
type trial struct {
	runner  Runner
	rng     *rand.Rand
	inputs  []Tensor
	axes    []int // of the inputs
	blocks  []statebuffer.Block
	outputs []trialOutput
}

// trialOutput is an output in which lanes can be compared.
type trialOutput struct {
	name     string
	at, axis int
	optional bool // the model may write nothing, with no lane for any request
}

// leak tells what shows that the lanes of a batch are not apart, or nothing if they
// are, or if no such run is possible: what numbers a model takes is not known.
func (w *wiring) leak(r Runner) string {
	for _, extent := range probeExtents {
		t := w.newTrial(r, extent)
		if t == nil {
			return ""
		}
		leak, ran := t.leak()
		t.close()
		if ran {
			return leak
		}
	}
	return ""
}

// newTrial fills the inputs: numbers with a fraction at random, others with zeros,
// and what the backend fills as in the middle of a sequence. nil for a model with
// texts, or if there is no memory.
func (w *wiring) newTrial(r Runner, extent int64) *trial {
	sig := r.Signature()
	t := &trial{runner: r, rng: rand.New(rand.NewPCG(1, 2)), inputs: make([]Tensor, len(sig.Inputs)), axes: make([]int, len(sig.Inputs))}
	for i := range w.inputs {
		if p := &w.inputs[i]; !sig.Inputs[p.at].Optional && !t.give(p.at, p.axis, p.dims, p.DType, nil, extent) {
			t.close()
			return nil
		}
	}
	for i := range w.fills {
		f := &w.fills[i]
		value, dims := f.value[index(f.kind == fillReady || f.kind == fillMask)], f.dims
		if f.mask != nil {
			dims = dims.With(f.mask.axis, t.maskLength(w, f.mask, extent))
		}
		if !t.give(f.at, f.axis, dims, f.dtype, value, extent) {
			t.close()
			return nil
		}
	}
	for _, states := range [][]stateWire{w.states, w.varying} {
		for i := range states {
			s := &states[i]
			if !t.give(s.in, s.axis, s.dims, s.dtype, nil, extent) {
				t.close()
				return nil
			}
			t.outputs = append(t.outputs, trialOutput{s.output, s.out, s.axis, s.update == statebuffer.KeepIfEmpty})
		}
	}
	for i := range w.outputs {
		if p := &w.outputs[i]; p.axis != noAxis && !p.stateOut && p.DType != tensor.Bytes {
			t.outputs = append(t.outputs, trialOutput{name: p.Name, at: p.at, axis: p.axis})
		}
	}
	return t
}

// maskLength is how long a mask is, which hides nothing: that of the states, and of
// the input that it counts.
func (t *trial) maskLength(w *wiring, m *maskWire, extent int64) int64 {
	if m.length >= 0 {
		if l := &w.lengths[m.length]; t.inputs[l.at].DType != tensor.Invalid {
			return extent + t.inputs[l.at].Shape[l.axis]
		}
	}
	return extent
}

// give makes an input of two lanes. With a value every lane has that.
func (t *trial) give(at, axis int, dims tensor.Shape, dtype tensor.DType, value []byte, extent int64) bool {
	if dtype == tensor.Bytes {
		return false
	}
	shape := batched(dims.Clone(), axis, 2)
	for i, d := range shape {
		if d < 0 {
			shape[i] = extent
		}
	}
	size, err := shape.Bytes(dtype)
	if err != nil {
		return false
	}
	block, err := t.runner.Memory().Alloc(size)
	if err != nil {
		return false
	}
	t.blocks = append(t.blocks, block)
	t.inputs[at], t.axes[at] = Tensor{Data: block, DType: dtype, Shape: shape}, noAxis
	if value != nil {
		for rest := block.Bytes; len(rest) > 0; rest = rest[len(value):] {
			if copy(rest, value) < len(value) {
				return false
			}
		}
		return true
	}
	t.axes[at] = axis
	if axis == noAxis {
		t.numbers(block.Bytes, dtype)
		return true
	}
	for lane := range int64(2) {
		t.change(at, lane)
	}
	return true
}

func (t *trial) close() {
	for _, b := range t.blocks {
		t.runner.Memory().Free(b)
	}
}

// change gives a lane of an input other numbers.
func (t *trial) change(at int, lane int64) {
	in := &t.inputs[at]
	for part := range in.lane(t.axes[at], lane) {
		t.numbers(part, in.DType)
	}
}

// numbers are those between 0.5 and 1 in types with fractions, and else 0.
func (t *trial) numbers(to []byte, dtype tensor.DType) {
	size := dtype.Size()
	for at := 0; at+size <= len(to); at += size {
		random := t.rng.Uint64()
		switch dtype {
		case tensor.FP64:
			binary.NativeEndian.PutUint64(to[at:], math.Float64bits(0.5)|random>>12)
		case tensor.FP32:
			binary.NativeEndian.PutUint32(to[at:], math.Float32bits(0.5)|uint32(random>>41))
		case tensor.FP16:
			binary.NativeEndian.PutUint16(to[at:], 0x3800|uint16(random>>54))
		case tensor.BF16:
			binary.NativeEndian.PutUint16(to[at:], 0x3F00|uint16(random>>57))
		default:
			clear(to[at : at+size])
		}
	}
}

// lane are the pieces of memory in which a lane of a tensor on the host lies: none, if
// the model wrote nothing for it.
func (t *Tensor) lane(axis int, lane int64) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if axis >= len(t.Shape) || lane >= t.Shape[axis] {
			return
		}
		l, err := layoutOf(t.Shape, axis, t.DType)
		if err != nil {
			return
		}
		for x := range l.Runs {
			if !yield(t.Data.Bytes[(x*t.Shape[axis]+lane)*l.RunBytes:][:l.RunBytes]) {
				return
			}
		}
	}
}

// leak runs the trial as it is, twice, and with other contents in one lane and in
// the other: the outputs of the lane that has kept its inputs must be the same to
// the bit. A model with chance in it cannot be judged.
func (t *trial) leak() (leak string, ran bool) {
	first, ok := t.run()
	if !ok {
		return "", false
	}
	again, ok := t.run()
	if !ok || !same(first, again) {
		return "", false
	}
	for i, o := range t.outputs {
		if o.optional && slices.Contains(first[i].Shape, 0) {
			continue
		}
		if o.axis != noAxis && (o.axis >= len(first[i].Shape) || first[i].Shape[o.axis] != 2) {
			return fmt.Sprintf("output %q has shape %v for two of them", o.name, first[i].Shape), true
		}
	}
	before := first
	for kept := range int64(2) {
		for at, axis := range t.axes {
			if t.inputs[at].DType != tensor.Invalid && axis != noAxis {
				t.change(at, 1-kept)
			}
		}
		after, ok := t.run()
		if !ok {
			return "", false
		}
		for i, o := range t.outputs {
			if o.axis != noAxis && !sameLane(&before[i], &after[i], o.axis, kept) {
				return fmt.Sprintf("output %q of one changes with the inputs of another", o.name), true
			}
		}
		before = after
	}
	return "", true
}

// run tells the outputs, in memory of their own.
func (t *trial) run() ([]Tensor, bool) {
	outputs := make([]Tensor, len(t.runner.Signature().Outputs))
	for _, o := range t.outputs {
		outputs[o.at].DType = t.runner.Signature().Outputs[o.at].DType
	}
	if err := try(t.runner, t.inputs, outputs); err != nil {
		return nil, false
	}
	var kept []Tensor
	for _, o := range t.outputs {
		out := outputs[o.at]
		kept = append(kept, Tensor{DType: out.DType, Shape: out.Shape.Clone(), Data: statebuffer.Block{Bytes: bytes.Clone(out.Data.Bytes)}})
	}
	return kept, true
}

func same(a, b []Tensor) bool {
	for i := range a {
		if !bytes.Equal(a[i].Data.Bytes, b[i].Data.Bytes) {
			return false
		}
	}
	return true
}

func sameLane(a, b *Tensor, axis int, lane int64) bool {
	bytesOf := func(t *Tensor) []byte { return bytes.Join(slices.Collect(t.lane(axis, lane)), nil) }
	return bytes.Equal(bytesOf(a), bytesOf(b))
}
