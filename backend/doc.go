// Package backend is what the stateful backend does, in pure Go: it reads a
// model's configuration, joins it with the tensors of the ONNX file, and runs
// batches of requests with the states of their sequences. It knows neither C nor
// ONNX Runtime: a [Batch] stands for what the server hands over, a [Runner] for
// a loaded model.
//
// The way of a model:
//
//	ParseConfig, ParseParameters   the configuration as data, checked by itself
//	candidatesFor, chooser.choose  where the batch of each tensor is: evidence makes
//	                               candidates, runs of the model prove one
//	wirer                          each tensor of the model gets its purpose:
//	                               port, state, or filled by us; all faults at once
//	NewInstance                    session, slots and buffers; warmed up
//	Instance.Execute               one batch, see execute.go
//	Instance.Close
//
// A [Model] is safe for concurrent use. An [Instance] belongs to one goroutine at
// a time; several instances run at once. Memory that comes with a Batch is
// borrowed until Batch.Finish; memory of a Runner until its Close.
//
// Errors that clients see are of type [Error] and carry Triton's code.
package backend
