package parity

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"tritonstateful/backend"
	"tritonstateful/backend/plan"
	"tritonstateful/internal/cli/recording"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// setting is how requests are made up. Which one a model takes has to be tried.
type setting struct {
	extent int64 // of open axes that are not the batch
	// integers are drawn from low to high.
	low, high int64
}

// The extents that are tried, and the integers.
var (
	extents  = []int64{4, 8, 16, 3, 5, 17, 32, 45, 64, 61, 100, 160, 257, 400, 480, 512, 576, 640, 1, 2, 6, 7, 9, 10, 11, 12, 13, 15, 20, 21, 24, 25, 30, 40, 41, 50, 80, 128, 256, 320, 960, 1024, 1280, 1536, 1600}
	integers = [][2]int64{{1, 3}, {0, 1}, {1, 1}, {0, 0}}
)

// settings lists what is tried. extent, if it is not 0, is the only one.
func settings(extent int64) (all []setting) {
	tried := extents
	if extent != 0 {
		tried = []int64{extent}
	}
	for _, n := range integers {
		for _, e := range tried {
			all = append(all, setting{e, n[0], n[1]})
		}
	}
	return all
}

// inputs are those of a step of a lane, in the model's shapes. recorded has what comes from a file, by the position in
// plan.Inputs.
func (ref *reference) inputs(s setting, lane, step int, recorded map[int]*recording.Recording) ([]value, error) {
	pl := ref.model.Plan
	all := make([]value, len(pl.Inputs))
	for i := range pl.Inputs {
		p := &pl.Inputs[i]
		info := &ref.model.Signature.Inputs[p.Index]
		shape := p.Dims.With(p.Axis, 1)
		for axis, extent := range shape {
			if extent < 0 {
				shape[axis] = ref.openExtent(info.Symbols[axis], s)
			}
		}
		n, err := shape.Elements()
		if err != nil || n > 1<<26 {
			return nil, fmt.Errorf("input %q would have the shape %v", p.Name, shape)
		}
		all[i] = value{p.DType, shape, nil}
		if r := recorded[i]; r != nil {
			if all[i].data, err = r.Piece(lane, step, int(n)); err != nil {
				return nil, fmt.Errorf("input %q: %w", p.Name, err)
			}
			continue
		}
		seed := uint64(lane)<<32 | uint64(step)
		if p.Axis == tensor.NoAxis {
			seed = 0 // requests that do not agree on it never share a run
		}
		all[i].data = made(p, info, s, int(n), rand.New(rand.NewPCG(seed, uint64(i))))
	}
	return all, nil
}

// openExtent is that of an axis by its name, which may be a sum, as in "past_sequence_length + 1".
func (ref *reference) openExtent(symbol string, s setting) (sum int64) {
	for term := range strings.SplitSeq(symbol, "+") {
		term = strings.TrimSpace(term)
		if n, err := strconv.ParseInt(term, 10, 32); err == nil {
			sum += n
		} else if extent, ofState := ref.extentOf(term); ofState {
			sum += extent
		} else {
			sum += s.extent
		}
	}
	if sum <= 0 { // no request brings nothing, though a state of that name begins so
		return s.extent
	}
	return sum
}

// made are elements: fractions between -1 and 1, integers as the setting has it. A length is that of the open axes, and a
// mask hides nothing, as far as names tell.
func made(p *plan.IO, info *onnx.TensorInfo, s setting, n int, rng *rand.Rand) []byte {
	name := strings.ToLower(info.Name)
	isMask, isLength := strings.Contains(name, "mask"), strings.Contains(name, "len")
	var data []byte
	for range n {
		number := s.low + rng.Int64N(s.high-s.low+1)
		fraction := 2*rng.Float64() - 1
		switch {
		case isMask:
			number, fraction = 1, 1
		case isLength && s.high > 0:
			number = s.extent
		}
		switch p.DType {
		case tensor.FP16, tensor.FP32, tensor.FP64, tensor.BF16:
			data = tensor.AppendFloat(data, fraction, p.DType)
		case tensor.Bytes:
			text := strconv.FormatInt(number, 10)
			data = append(binary.NativeEndian.AppendUint32(data, uint32(len(text))), text...)
		case tensor.Bool:
			data = append(data, byte(number&1))
		default:
			to := make([]byte, p.DType.Size())
			tensor.PutInt(to, p.DType, number)
			data = append(data, to...)
		}
	}
	return data
}

// requestInputs are inputs as a request has them. An axis of extent 1 can move without a byte moving, so only shapes differ.
func requestInputs(pl *plan.Plan, inputs []value) []backend.Input {
	all := make([]backend.Input, len(inputs))
	for i := range inputs {
		p, v := &pl.Inputs[i], &inputs[i]
		shape := v.shape.Clone()
		if p.BatchInFront && p.Axis != tensor.NoAxis && len(p.Request) == len(shape) {
			shape = shape.Without(p.Axis)
		}
		for len(shape) < len(p.Request) {
			shape = append(tensor.Shape{1}, shape...)
		}
		all[i] = backend.Input{Present: true, DType: v.dtype, Shape: shape, Data: v.data}
	}
	return all
}
