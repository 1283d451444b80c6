// Package onnx is the contract between the backend and what runs ONNX models: the
// backend asks for a model by [SessionOptions] and runs it by a [Runner]. Package
// ortrunner implements it with ONNX Runtime; tests of the backend implement it in Go.
//
// The nouns:
//
//   - A [Runner] is a loaded model on one device, a [DeviceRunner] one on a GPU.
//   - A [Tensor] is an argument or a result of a run: borrowed memory, an element type
//     and a shape.
//   - A [Signature] is what the model file says of its tensors, a [TensorInfo] for each.
//   - [OpenRunner] loads a model as [SessionOptions] say.
//   - A [Setting] is a setting of ONNX Runtime by its own name; [SessionKeys] and its
//     neighbors are the names that there are, with the [Kind] of each.
//
// The package holds no code that runs anything and has no state. It imports
// statebuffer for the memory of tensors, and internal/tensor.
package onnx
