//go:build testhooks

package ortrunner

import (
	ort "github.com/yalue/onnxruntime_go"

	"tritonstateful/internal/cuda"
	"tritonstateful/internal/onnx"
)

// SimulateGPU makes the CPU compute what sessions on a GPU would, once the work
// that was put into their stream before is done. driver is the path of a CUDA
// driver whose memory the host can read (internal/cuda/fakedriver). Call it
// before the first Open. Only tests have it: they build with the tag testhooks.
func (r *Runtime) SimulateGPU(driver string) {
	r.driver, r.gpu = openDriver(driver), simulatedGPU
}

var simulatedGPU = gpuBackend{
	memory:  "Cpu",
	check:   func(onnx.Provider) error { return nil },
	provide: func(*ort.SessionOptions, onnx.SessionOptions, *cuda.Stream) error { return nil },
	before:  (*cuda.Stream).Sync,
}
