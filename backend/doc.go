// Package backend executes batches of requests with the states of their sequences, in
// pure Go. It knows neither C nor ONNX Runtime: a [Batch] stands for what Triton hands
// over, an onnx.Runner for a loaded model, and [Server] for the process around.
//
// The path of a load:
//
//	NewModel              parses the configuration (package config)
//	Model.NewInstance     opens the model file, plans what each tensor is for (package
//	                      plan), allocates slots and tensors, and warms up
//
// The path of a batch, which is Instance.Execute, one file each:
//
//	execute.go            the loop: a batch is one run of the model or several
//	queue.go              the requests that still have to run
//	admit.go, input.go    which of them the next run takes; what is refused
//	free.go               sequences that the server knows nothing of
//	split.go              how many lanes the run has, and in which order
//	gather.go, ioset.go,  inputs, generated inputs and states are brought into the
//	generate.go           tensors of the run
//	run.go                the model runs
//	retry.go              what runs again, or separately
//	answer.go             outputs or errors go to the server
//
// A lane is the position of one sequence, or of one element of a request's batch, along
// the batch axis of a run. A padding lane has no request. A slot stores one sequence's
// values of every state (package statebuffer).
//
// A [Model] is safe for concurrent use. An [Instance] belongs to one goroutine at a time;
// several instances run at once. Memory that comes with a Batch is borrowed until
// Batch.Finish, memory of a runner until its Close.
//
// Errors that clients see are of type status.Error and carry Triton's code.
package backend
