package ortrunner

// #include "shim.h"
import "C"

import (
	"sync/atomic"

	"tritonstateful/internal/onnx"
)

// session is an ONNX Runtime session on the CPU, and what it says of its model. Runners
// share it: OrtApi::Run can be called on several threads at once, and everything that it
// writes belongs to one runner. So the weights are in memory once.
type session struct {
	c         *C.OrtSession // owned
	signature *onnx.Signature
	run       []option     // of each run
	users     atomic.Int32 // open runners; the last one releases c
}

// newSharedSession takes ownership of c, whose runs have the options run. The caller is its
// first user.
func newSharedSession(c *C.OrtSession, run []option) *session {
	s := &session{c: c, run: run}
	s.users.Store(1)
	return s
}

func (s *session) join() { s.users.Add(1) }

func (s *session) leave() {
	if s.users.Add(-1) == 0 {
		C.ortx_release_session(s.c)
	}
}

// SessionBytes implements onnx.Sizer.
func (r *runner) SessionBytes() int64 { return sessionBytes(r.session.c, nil) }

// SessionBytes implements onnx.Sizer.
func (r *gpuRunner) SessionBytes() int64 { return sessionBytes(r.session, r.where) }

// sessionBytes is 0 also where ONNX Runtime fails to say: it is for reports only.
func sessionBytes(s *C.OrtSession, memory *C.OrtMemoryInfo) int64 {
	var bytes C.uint64_t
	_ = statusError(C.ortx_session_bytes(s, memory, &bytes))
	return int64(bytes)
}
