package backend

import (
	"errors"
	"fmt"
	"strings"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// stream is one input of an accumulator with its state and its output, as the
// example models have them: the new state is the old one plus the sum over the
// rows of the input, the output is the input plus the new state.
type stream struct {
	input, output     string
	stateIn, stateOut string
	dtype             tensor.DType
	// order is the axes of input and output: r rows, b batch, k features;
	// stateOrder those of the state, where r has the extent 1.
	order, stateOrder string
	rows, features    int64
}

// accumulate is the example model accumulate_fp32.
func accumulate() stream {
	return stream{"Input", "Output", "Accumulate_In", "Accumulate_Out", tensor.FP32, "rbk", "bk", 4, 5}
}

func (s *stream) of(dtype tensor.DType) stream {
	t := *s
	t.dtype = dtype
	suffix := "_" + strings.ToLower(dtype.String())
	t.input, t.output, t.stateIn, t.stateOut = t.input+suffix, t.output+suffix, t.stateIn+suffix, t.stateOut+suffix
	return t
}

func (s *stream) extent(axis rune, lanes int64) int64 {
	switch axis {
	case 'r':
		return s.rows
	case 'k':
		return s.features
	default:
		return lanes
	}
}

func (s *stream) dims(order string, lanes int64) (dims tensor.Shape) {
	for _, axis := range order {
		if order == s.stateOrder && axis == 'r' {
			dims = append(dims, 1)
			continue
		}
		dims = append(dims, s.extent(axis, lanes))
	}
	return dims
}

// at is the place of an element in a tensor, counted in elements. A state has one row.
func (s *stream) at(order string, lanes int64, row, lane, feature int64) int64 {
	place := int64(0)
	for _, axis := range order {
		switch axis {
		case 'r':
			if order == s.stateOrder {
				place += row
			} else {
				place = place*s.rows + row
			}
		case 'k':
			place = place*s.features + feature
		default:
			place = place*lanes + lane
		}
	}
	return place
}

// accumulator is a Runner of streams over any Memory.
type accumulator struct {
	streams []stream
	sig     onnx.Signature
	memory  statebuffer.Memory
	// before is called at the start of each Run; its error is Run's.
	before func() error
	runs   []int // lanes of each run
	resets [][]bool
	closed bool
}

const resetName = "ResetSequence"

func newAccumulator(memory statebuffer.Memory, streams ...stream) *accumulator {
	a := &accumulator{streams: streams, memory: memory}
	info := func(name string, s *stream, order string) onnx.TensorInfo {
		t := onnx.TensorInfo{Name: name, DType: s.dtype, Dims: s.dims(order, tensor.Dynamic), Symbols: make([]string, len(order))}
		t.Symbols[strings.IndexRune(order, 'b')] = "batch"
		return t
	}
	for i := range streams {
		s := &streams[i]
		a.sig.Inputs = append(a.sig.Inputs, info(s.input, s, s.order), info(s.stateIn, s, s.stateOrder))
		a.sig.Outputs = append(a.sig.Outputs, info(s.output, s, s.order), info(s.stateOut, s, s.stateOrder))
	}
	a.sig.Inputs = append(a.sig.Inputs, onnx.TensorInfo{Name: resetName, DType: tensor.Bool, Dims: tensor.Shape{tensor.Dynamic, 1}, Symbols: []string{"batch", ""}})
	return a
}

// withoutReset is a model that knows nothing of starts.
func (a *accumulator) withoutReset() { a.sig.Inputs = a.sig.Inputs[:len(a.sig.Inputs)-1] }

func (a *accumulator) hasReset() bool { return len(a.sig.Inputs) > 2*len(a.streams) }

func (a *accumulator) Signature() *onnx.Signature { return &a.sig }
func (a *accumulator) Memory() statebuffer.Memory { return a.memory }
func (a *accumulator) Close()                     { a.closed = true }

func (a *accumulator) Run(inputs, outputs []onnx.Tensor) error {
	for _, o := range outputs { // after an error outputs are undefined, so undefine them first
		for i := range o.Data.Bytes {
			o.Data.Bytes[i] = 0xEE
		}
	}
	if a.before != nil {
		if err := a.before(); err != nil {
			return err
		}
	}
	if len(inputs[1].Shape) != len(a.streams[0].stateOrder) {
		return fmt.Errorf("shape %v of the state", inputs[1].Shape)
	}
	lanes := inputs[1].Shape[strings.IndexRune(a.streams[0].stateOrder, 'b')]
	a.allocate(outputs, lanes)
	a.runs = append(a.runs, int(lanes))
	reset := make([]bool, lanes)
	if a.hasReset() {
		control := &inputs[len(inputs)-1]
		if control.Shape[0] != lanes {
			return fmt.Errorf("shape %v of the control", control.Shape)
		}
		for lane := range lanes {
			reset[lane] = runnertest.Element(control.Data.Bytes, control.DType, lane) != 0
		}
	}
	a.resets = append(a.resets, reset)
	for i := range a.streams {
		s := &a.streams[i]
		if err := errors.Join(
			checkTensor(&inputs[2*i], s.dtype, s.dims(s.order, lanes)), checkTensor(&inputs[2*i+1], s.dtype, s.dims(s.stateOrder, lanes)),
			checkTensor(&outputs[2*i], s.dtype, s.dims(s.order, lanes)), checkTensor(&outputs[2*i+1], s.dtype, s.dims(s.stateOrder, lanes)),
		); err != nil {
			return err
		}
		s.run(inputs[2*i:], outputs[2*i:], lanes, reset)
	}
	return nil
}

// allocate makes the outputs that are left to the runner.
func (a *accumulator) allocate(outputs []onnx.Tensor, lanes int64) {
	for i := range a.streams {
		s := &a.streams[i]
		for k, order := range []string{s.order, s.stateOrder} {
			if out := &outputs[2*i+k]; out.DType != tensor.Invalid && out.Data.Size == 0 {
				out.Shape = s.dims(order, lanes)
				bytes, _ := out.Shape.Bytes(out.DType)
				out.Data = statebuffer.Block{Bytes: make([]byte, bytes), Size: bytes}
			}
		}
	}
}

// checkTensor refuses what ONNX Runtime would.
func checkTensor(t *onnx.Tensor, dtype tensor.DType, shape tensor.Shape) error {
	bytes, err := t.Shape.Bytes(dtype)
	if err != nil || t.DType != dtype || !t.Shape.Equal(shape) || t.Data.Size != bytes || int64(len(t.Data.Bytes)) != bytes {
		return fmt.Errorf("tensor of %v %v with %d bytes: want %v %v", t.DType, t.Shape, t.Data.Size, dtype, shape)
	}
	return nil
}

func (s *stream) run(inputs, outputs []onnx.Tensor, lanes int64, reset []bool) {
	for lane := range lanes {
		for k := range s.features {
			place := s.at(s.stateOrder, lanes, 0, lane, k)
			sum := 0.0
			if !reset[lane] {
				sum = runnertest.Element(inputs[1].Data.Bytes, s.dtype, place)
			}
			for r := range s.rows {
				sum += runnertest.Element(inputs[0].Data.Bytes, s.dtype, s.at(s.order, lanes, r, lane, k))
			}
			runnertest.SetElement(outputs[1].Data.Bytes, s.dtype, place, sum)
			sum = runnertest.Element(outputs[1].Data.Bytes, s.dtype, place)
			for r := range s.rows {
				at := s.at(s.order, lanes, r, lane, k)
				runnertest.SetElement(outputs[0].Data.Bytes, s.dtype, at, sum+runnertest.Element(inputs[0].Data.Bytes, s.dtype, at))
			}
		}
	}
}
