// Package onnxfile reads of a model file what ONNX Runtime does not tell: which
// operators there are. It walks over the few messages of onnx.proto that hold
// nodes and skips the rest, weights included, so that a file of gigabytes costs
// some reads of its structure.
//
//	operators, err := onnxfile.Operators("1/model.onnx")
//	if operators["DynamicQuantizeLinear"] > 0 { ... }
package onnxfile
