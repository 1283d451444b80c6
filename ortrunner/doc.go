// Package ortrunner runs ONNX models with ONNX Runtime: it implements
// onnx.Runner and, for host memory, statebuffer.Memory. It is the only place
// that knows ONNX Runtime.
//
// The nouns:
//
//   - A [Runtime] is the ONNX Runtime library and its one environment in the
//     process. [Runtime.Open] loads models.
//   - A runner is one session. It owns the memory that it allocates.
//   - A call is the set of C arrays that hold the arguments of a run. They are
//     made once for a session.
//   - A value is an OrtValue, a tensor over borrowed memory. Each tensor of a
//     model caches the values of the latest addresses and shapes, so that a run
//     with tensors seen before builds nothing and is one call into C.
//
// github.com/yalue/onnxruntime_go opens the library by its path and makes the
// options of sessions. What it lacks is called in C (shim.h; ortapi.h lists the
// functions): an environment with our logger, sessions whose errors keep their code,
// names of axes, initializers that can be overridden, values over any memory, and
// runs that allocate nothing in Go.
//
// C holds no Go pointer: tensors and everything that a run points to are in C memory.
// statusError is the only place that turns an OrtStatus into an error.
//
// On a GPU (gpu.go) all work of a session goes into one CUDA stream, and its calls of
// ONNX Runtime are made on one thread of its own (osthread.go). Tests simulate a GPU
// when they are built with the tag testhooks (simulate.go).
//
//	rt, err := ortrunner.New(ortrunner.Options{Library: path, Log: log})
//	runner, err := rt.Open(onnx.SessionOptions{Path: "1/model.onnx"})
//	defer runner.Close()
//	x, err := runner.Memory().Alloc(16)
//	err = runner.Run(inputs, outputs)
package ortrunner
