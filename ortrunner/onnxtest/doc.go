// Package onnxtest writes small ONNX models for tests, so that they need neither
// Python nor files in the repository. It knows the few messages of onnx.proto
// that a graph of plain operators takes; field numbers are named next to each.
//
//	model := onnxtest.Model{
//		Inputs:  []onnxtest.Value{{Name: "x", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", 4)}},
//		Nodes:   []onnxtest.Node{{Op: "Add", Inputs: []string{"x", "x"}, Outputs: []string{"y"}}},
//		Outputs: []onnxtest.Value{{Name: "y", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", 4)}},
//	}
//	path := model.Write(t)
package onnxtest
