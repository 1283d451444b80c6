// Package parity compares what the backend answers with what ONNX Runtime computes for one sequence at a time.
//
// The judge is reference.go: it runs the model with one lane and keeps the states itself, in the plainest way there is, so
// that it shares no code with the execution. Its requests are made by contents.go, or come from a file (data.go). check.go
// serves the model by package localserver, has it answer the same requests alone, in batches, in other orders, after a
// restart and after a restore, and compares (compare.go).
//
//	report, err := parity.Check(model, runtime.Open, parity.Options{Lanes: 8, Steps: 12})
package parity
