package planner

import (
	"slices"

	"tritonstateful/internal/onnx"
)

// Quantizers are the operators that find the scale of a tensor as it comes, one for
// all its lanes.
var Quantizers = []string{"DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"}

// quantizer returns an operator of the model that scales all lanes alike, or "".
func quantizer(sig *onnx.Signature) string {
	at := slices.IndexFunc(Quantizers, func(name string) bool { return sig.Operators[name] > 0 })
	if at < 0 {
		return ""
	}
	return Quantizers[at]
}

// warnOfEmptyStates warns of the first state that begins with an extent of 0 in a model with
// an operator that ends the process on an empty tensor. Whether it gets one, the file does
// not show.
func (pl *planner) warnOfEmptyStates() {
	operator := pl.sig.EndsOnEmpty()
	if operator == "" {
		return
	}
	for i := range pl.plan.Varying {
		if s := &pl.plan.Varying[i]; slices.Contains(s.Shape, 0) {
			pl.warn("state %q begins with shape %v, and ONNX Runtime crashes when the operator %s, which the model has, runs with an empty tensor: if the first step brings the empty state into it, give the state an extent by initial_states, for example '%s = %s'", s.Input, s.Shape, operator, s.Input, s.ExampleValue(1))
			return
		}
	}
}
