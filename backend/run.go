package backend

// infer runs the model, and takes note of what it has allocated.
func (x *execution) infer() error {
	in, s := x.in, x.stage
	if in.device != nil && in.wiring.varies {
		return x.inferVarying()
	}
	if err := in.runner.Run(s.inputs, s.outputs); err != nil {
		return err
	}
	return s.takeOutputs(in.wiring, x.step)
}

// inferVarying is infer on a GPU where shapes vary. Those of the answers are known
// when the run is in the stream; only then it can be asked where they are to go.
func (x *execution) inferVarying() (err error) {
	in, s := x.in, x.stage
	defer func() {
		if e := in.device.Wait(); err == nil {
			err = e
		}
	}()
	if err := in.device.Submit(s.inputs, s.outputs); err != nil {
		return err
	}
	if err := s.takeOutputs(in.wiring, x.step); err != nil {
		return err
	}
	return x.reserve()
}
