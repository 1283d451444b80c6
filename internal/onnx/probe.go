package onnx

// Probe runs a model that may refuse, without an error in the server's log if the runner
// can do so.
func Probe(r Runner, inputs, outputs []Tensor) error {
	if p, ok := r.(Prober); ok {
		return p.Probe(inputs, outputs)
	}
	return r.Run(inputs, outputs)
}
