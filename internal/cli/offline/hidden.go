package offline

import (
	"fmt"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// hiddenStates warns of an input that may be a state though no names say so, in a model without states whose inputs and outputs
// were filled in. It returns "" if there is none.
func (m *Model) hiddenStates() string {
	if len(m.Plan.States)+len(m.Plan.Varying) > 0 || len(m.Given.Input) > 0 {
		return ""
	}
	for i := range m.Signature.Inputs {
		for j := range m.Signature.Outputs {
			in, out := &m.Signature.Inputs[i], &m.Signature.Outputs[j]
			if couldBeState(in, out) && (in.Optional || i > 0) && j > 0 { // the first ones are most often those of requests
				return fmt.Sprintf("no states were found, but input %q has the type and shape of output %q: if an output of a step is the input of the next one, name the pairs, for example parameters { key: 'state_pairs' value { string_value: '<<<%s, %s>>>' } }", in.Name, out.Name, in.Name, out.Name)
			}
		}
	}
	return ""
}

// couldBeState reports whether an input has the type and the shape of an output. The default of an optional input can have an
// extent of 1, which is stretched.
func couldBeState(in, out *onnx.TensorInfo) bool {
	if in.DType != out.DType || len(in.Dims) != len(out.Dims) || len(in.Dims) < 2 {
		return false
	}
	for axis, extent := range in.Dims {
		same := extent == out.Dims[axis] && (extent != tensor.Dynamic || in.Symbols[axis] == out.Symbols[axis])
		if !same && !(in.Optional && extent == 1) {
			return false
		}
	}
	return true
}
