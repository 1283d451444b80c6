package backend

import (
	"fmt"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// noAxis is the batch axis of a tensor that has none.
const noAxis = -1

// batchSymbol is the name that the model gives to the batch: of all names of
// dynamic axes, the one that the most tensors carry; on a tie the one that stands
// further out in the first tensor that tells them apart. It is "" for a model
// that names nothing.
func batchSymbol(sig *Signature) string {
	type vote struct{ tensors, depth int }
	votes := map[string]vote{}
	for _, infos := range [][]TensorInfo{sig.Inputs, sig.Outputs} {
		for i := range infos {
			for axis, symbol := range infos[i].Symbols {
				if symbol != "" && axisOf(symbol, &infos[i]) == axis {
					v := votes[symbol]
					votes[symbol] = vote{v.tensors + 1, v.depth + axis}
				}
			}
		}
	}
	best, won := "", vote{}
	for symbol, v := range votes {
		switch {
		case v.tensors > won.tensors,
			v.tensors == won.tensors && v.depth < won.depth,
			v == won && symbol < best:
			best, won = symbol, v
		}
	}
	return best
}

// axisOf is the first axis that carries the symbol, or noAxis.
func axisOf(symbol string, info *TensorInfo) int {
	if symbol == "" {
		return noAxis
	}
	for axis, s := range info.Symbols {
		if s == symbol {
			return axis
		}
	}
	return noAxis
}

// layoutOf says how a lane of a tensor with these extents lies in memory; the
// extent at the batch axis does not count.
func layoutOf(dims tensor.Shape, axis int, dtype tensor.DType) (statebuffer.Layout, error) {
	if axis == noAxis {
		bytes, err := dims.Bytes(dtype)
		return statebuffer.Layout{Runs: 1, RunBytes: bytes}, err
	}
	if _, err := dims.With(axis, 1).Bytes(dtype); err != nil { // the whole must fit, not only its parts
		return statebuffer.Layout{}, err
	}
	runs, err := dims[:axis].Elements()
	if err != nil {
		return statebuffer.Layout{}, err
	}
	bytes, err := dims[axis+1:].Bytes(dtype)
	return statebuffer.Layout{Runs: runs, RunBytes: bytes}, err
}

// stateAxis finds the batch axis of a state's input or output, and says how.
func stateAxis(info *TensorInfo, symbol string) (axis int, how string, err error) {
	if axis := axisOf(symbol, info); axis != noAxis {
		return axis, fmt.Sprintf("axis %q", symbol), nil
	}
	axis = noAxis
	for i, d := range info.Dims {
		if d < 0 {
			axis = i // the last one, as NVIDIA's backend has it
		}
	}
	if axis == noAxis {
		return axis, "", fmt.Errorf("its shape %v has no dynamic axis, so there is none for the batch: export the model with a dynamic batch axis", info.Dims)
	}
	for i, d := range info.Dims {
		if d < 0 && i != axis {
			return axis, "", fmt.Errorf("its shape %v has several dynamic axes and none carries the batch's name %q: fix all but the batch axis when the model is exported", info.Dims, symbol)
		}
	}
	return axis, "its only dynamic axis", nil
}
