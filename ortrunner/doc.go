// Package ortrunner runs ONNX models with ONNX Runtime: it implements
// onnx.Runner and, for host memory, statebuffer.Memory. It is the only place
// that knows ONNX Runtime.
//
// The nouns:
//
//   - A [Runtime] is the ONNX Runtime library and its one environment in the
//     process. [Runtime.Open] loads models.
//   - A runner is one session. It owns the memory that it gives out.
//   - A call is the set of C arrays that hold the arguments of a run. They are
//     made once for a session.
//   - A value is an OrtValue, a tensor over borrowed memory. Each tensor of a
//     model keeps the values of the addresses and shapes seen last, so that a
//     run with tensors seen before builds nothing and is one crossing to C.
//
// github.com/yalue/onnxruntime_go opens the library by its path and makes the
// options of sessions. What it lacks is asked of the same library in C (shim.h;
// the functions are listed in ortapi.h): an environment with a logger of ours,
// sessions whose errors keep their code, names of axes, initializers that can be
// overridden, values over any memory, and runs that allocate nothing in Go.
//
// C keeps no Go pointer: tensors lie in memory of C, and what a run points to
// does too. An OrtStatus becomes an error in one place, statusError.
//
//	rt, err := ortrunner.New(ortrunner.Options{Library: path, Log: log})
//	runner, err := rt.Open(onnx.SessionOptions{Path: "1/model.onnx"})
//	defer runner.Close()
//	x, err := runner.Memory().Alloc(16)
//	err = runner.Run(inputs, outputs)
package ortrunner
