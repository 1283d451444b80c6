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

// recurrent are the operators that end the process in ONNX Runtime 1.31, by std::terminate:
// GRU where the batch or the time is 0, LSTM where the batch is.
var recurrent = []string{"GRU", "LSTM"}

// isRecurrent reports whether the model has operators that take no extent of 0.
func isRecurrent(sig *onnx.Signature) bool {
	return slices.ContainsFunc(recurrent, func(name string) bool { return sig.Operators[name] > 0 })
}
