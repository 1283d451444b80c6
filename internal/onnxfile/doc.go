// Package onnxfile counts the operators of an ONNX model file and lists its nodes, which
// ONNX Runtime does not report. It parses only the messages of onnx.proto that contain nodes and
// seeks over the rest, including weights, so that a file of many gigabytes takes few
// reads. It expects no valid file: any input gives a result or an error.
//
//	operators, nodes, err := onnxfile.Read("1/model.onnx")
//	if operators["DynamicQuantizeLinear"] > 0 { ... }
package onnxfile
