package backend

import "tritonstateful/internal/onnx"

// probe runs a model that may refuse, without an error in the server's log if the runner
// can do so.
func probe(r onnx.Runner, inputs, outputs []onnx.Tensor) error {
	if p, ok := r.(onnx.Prober); ok {
		return p.Probe(inputs, outputs)
	}
	return r.Run(inputs, outputs)
}
