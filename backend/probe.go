package backend

import (
	"slices"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// probedBatch is the name of a batch axis that was found by running the model.
const probedBatch = "batch (by probe runs)"

// probeExtents are what dynamic axes other than the batch get in probe runs: not
// 1 at first, which would be stretched to any batch.
var probeExtents = []int64{3, 1}

// nameBatch is the signature of a model, in which the batch axes have a name. If
// the names that the model gives do not tell which they are, and a tensor could
// have its batch at one axis or another or nowhere, the model is run with one and
// with two lanes for each way in which the axes can be the batch. If just one way
// works, its axes get a name; else nothing is guessed, and the configuration must
// tell.
func nameBatch(r Runner) *Signature {
	sig := r.Signature()
	doubtful := false
	for i := range sig.Inputs {
		doubtful = doubtful || len(dynamicAxes(&sig.Inputs[i])) > 1 || sig.Inputs[i].named()
	}
	if !doubtful || batchSymbol(sig) != "" {
		return sig
	}
	if found := batchByRuns(r, sig); found != nil {
		return found
	}
	return sig
}

// batchByRuns is the signature with a name at the axes that are the batch by runs,
// or nil if these do not tell.
func batchByRuns(r Runner, sig *Signature) *Signature {
	most := 0
	for i := range sig.Inputs {
		most = max(most, len(dynamicAxes(&sig.Inputs[i])))
	}
	for _, extent := range probeExtents {
		var working [][]int // for each way that works, the axes of inputs, then of outputs
		for k := range most {
			for _, fromBack := range []bool{false, true} {
				axes, ok := probe(r, guess(sig.Inputs, k, fromBack), extent)
				if ok && !slices.ContainsFunc(working, func(other []int) bool { return slices.Equal(axes, other) }) {
					working = append(working, axes)
				}
			}
		}
		if len(working) == 1 {
			return withBatch(sig, working[0])
		}
	}
	return nil
}

// withoutNames is a copy of the signature in which no axis has a name.
func withoutNames(sig *Signature) *Signature {
	bare := &Signature{Inputs: slices.Clone(sig.Inputs), Outputs: slices.Clone(sig.Outputs), Description: sig.Description}
	for _, infos := range [][]TensorInfo{bare.Inputs, bare.Outputs} {
		for i := range infos {
			infos[i].Symbols = make([]string, len(infos[i].Symbols))
		}
	}
	return bare
}

// guess takes the k-th dynamic axis of each tensor for its batch, counted from
// the front or from the back; a tensor with fewer has its last such one.
func guess(infos []TensorInfo, k int, fromBack bool) []int {
	axes := make([]int, len(infos))
	for i := range infos {
		dynamic := dynamicAxes(&infos[i])
		if fromBack {
			slices.Reverse(dynamic)
		}
		axes[i] = noAxis
		if len(dynamic) > 0 {
			axes[i] = dynamic[min(k, len(dynamic)-1)]
		}
	}
	return axes
}

// probe runs the model with one and two lanes at the given axes of its inputs. It
// works if every output with a dynamic axis has one that follows the lanes; then
// the axes of the outputs are appended.
func probe(r Runner, axes []int, extent int64) ([]int, bool) {
	sig := r.Signature()
	one, ok := probeRun(r, axes, 1, extent)
	if !ok {
		return nil, false
	}
	two, ok := probeRun(r, axes, 2, extent)
	if !ok {
		return nil, false
	}
	axes = slices.Clone(axes)
	for i := range sig.Outputs {
		found := noAxis
		for _, axis := range dynamicAxes(&sig.Outputs[i]) {
			if len(one[i]) > axis && len(two[i]) > axis && one[i][axis] == 1 && two[i][axis] == 2 {
				found = axis
				break
			}
		}
		if found == noAxis && len(dynamicAxes(&sig.Outputs[i])) > 0 {
			return nil, false
		}
		axes = append(axes, found)
	}
	return axes, true
}

// probeRun runs the model on zeros and tells the shapes of its outputs.
func probeRun(r Runner, axes []int, lanes, extent int64) (shapes []tensor.Shape, ok bool) {
	sig, memory := r.Signature(), r.Memory()
	inputs, outputs := make([]Tensor, len(sig.Inputs)), make([]Tensor, len(sig.Outputs))
	var blocks []statebuffer.Block
	defer func() {
		for _, b := range blocks {
			memory.Free(b)
		}
	}()
	for i := range sig.Inputs {
		info := &sig.Inputs[i]
		if info.Optional {
			continue
		}
		shape := info.Dims.Clone()
		for axis, d := range shape {
			switch {
			case axis == axes[i]:
				shape[axis] = lanes
			case d < 0:
				shape[axis] = extent
			}
		}
		size := int64(info.DType.Size())
		if info.DType == tensor.Bytes {
			size = 4 // an empty text is its length
		}
		n, err := shape.Elements()
		if err != nil {
			return nil, false
		}
		block, err := memory.Alloc(n * size)
		if err != nil {
			return nil, false
		}
		blocks = append(blocks, block)
		inputs[i] = Tensor{Data: block.At(0, n*size), DType: info.DType, Shape: shape}
	}
	for i := range sig.Outputs {
		outputs[i].DType = sig.Outputs[i].DType
	}
	if err := try(r, inputs, outputs); err != nil {
		return nil, false
	}
	for i := range outputs {
		shapes = append(shapes, outputs[i].Shape.Clone())
	}
	return shapes, true
}

// try is a run that may fail, without an error in the server's log if it can be.
func try(r Runner, inputs, outputs []Tensor) error {
	if p, ok := r.(Prober); ok {
		return p.Probe(inputs, outputs)
	}
	return r.Run(inputs, outputs)
}

// withBatch is a copy of the signature with a name at the batch axes.
func withBatch(sig *Signature, axes []int) *Signature {
	named := &Signature{Inputs: slices.Clone(sig.Inputs), Outputs: slices.Clone(sig.Outputs), Description: sig.Description}
	for i, axis := range axes {
		infos, at := named.Inputs, i
		if i >= len(named.Inputs) {
			infos, at = named.Outputs, i-len(named.Inputs)
		}
		if axis != noAxis {
			infos[at].Symbols = slices.Clone(infos[at].Symbols)
			infos[at].Symbols[axis] = probedBatch
		}
	}
	return named
}
