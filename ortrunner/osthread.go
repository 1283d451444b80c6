package ortrunner

import (
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"tritonstateful/internal/status"
)

// osThread is one thread of the operating system. ONNX Runtime keeps CUDA graphs by
// thread, and the server loads a model on another one than it runs it on. The thread may run
// on the cores that its maker's may run on: those of the instance's host policy.
type osThread struct {
	work   chan func() error
	result chan error
	cores  *unix.CPUSet // nil: not known
}

func newOSThread() *osThread {
	t := &osThread{work: make(chan func() error), result: make(chan error), cores: threadCores()}
	go t.serve()
	return t
}

// do runs a function on the thread and waits for it. One goroutine at a time
// calls it.
func (t *osThread) do(f func() error) error {
	t.work <- f
	return <-t.result
}

// stop ends the thread.
func (t *osThread) stop() { close(t.work) }

// serve never unlocks its thread, so that it ends with the goroutine.
func (t *osThread) serve() {
	runtime.LockOSThread()
	if t.cores != nil {
		_ = unix.SchedSetaffinity(0, t.cores) // without it the thread only runs elsewhere
	}
	for f := range t.work {
		t.result <- guarded(f)
	}
}

// guarded makes a panic an error: on a goroutine of ours it would end the
// server.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Errorf(status.Internal, "panic in a run: %v\n%s", p, debug.Stack())
		}
	}()
	debug.SetPanicOnFault(true) // of this goroutine
	return f()
}
