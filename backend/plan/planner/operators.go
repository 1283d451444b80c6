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
