package backend

// infer runs the model, and takes note of what it has allocated.
func (e *execution) infer() error {
	in, s := e.in, e.ioSet
	if in.device != nil && in.wiring.varies {
		return e.inferVarying()
	}
	if err := in.runner.Run(s.inputs, s.outputs); err != nil {
		return err
	}
	return s.takeOutputs(in.wiring, e.step)
}

// inferVarying is infer on a GPU where shapes vary. Those of the answers are known
// when the run is in the stream; only then it can be asked where they are to go.
func (e *execution) inferVarying() (err error) {
	in, s := e.in, e.ioSet
	defer func() {
		if failed := in.device.Wait(); err == nil {
			err = failed
		}
	}()
	if err := in.device.Submit(s.inputs, s.outputs); err != nil {
		return err
	}
	if err := s.takeOutputs(in.wiring, e.step); err != nil {
		return err
	}
	return e.reserve()
}
