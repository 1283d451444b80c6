package backend

import "tritonstateful/internal/status"

// Ready returns why the instance cannot execute, or nil. After some faults a GPU takes no
// more work from this process; the driver then fails every call. An instance on the CPU
// is ready from its load on. Safe for concurrent use until Close.
func (in *Instance) Ready() error {
	if in.device == nil {
		return nil
	}
	answer := make(chan error)
	go func() { // on a thread of Go's: the driver leaves a context on the one that calls it
		_, _, err := in.device.MemInfo()
		answer <- err
	}()
	if err := <-answer; err != nil {
		return status.Errorf(status.Unavailable, "instance %q: %v does not answer: %w; restart the server", in.name, in.device.Device(), err)
	}
	return nil
}
