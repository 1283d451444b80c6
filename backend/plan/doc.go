// Package plan says what each tensor of a model is for. A [Plan] is data: package planner
// makes it when the model is loaded, it never changes after that, and package backend reads
// it for every batch. Several instances share one, on any goroutine.
//
// The nouns:
//
//   - An [IO] is an input that requests bring, or an output that answers carry.
//   - A [State] is an input and an output of the model: what one step of a sequence writes
//     to the output, the next step reads from the input. It is of fixed shape or varies.
//   - A [Generated] input is one that the backend writes itself: a control, a constant, a
//     length, a mask, positions.
//   - A [Length] is an input or output whose extent is summed up for each sequence, for
//     generated inputs.
//   - A lane is the position of one sequence along the batch axis of a run; a Layout says
//     where the bytes of a lane are in a tensor.
//
// Positions of tensors (fields Index, In and Out) count in the inputs or the outputs of the
// model's onnx.Signature.
//
// How the batch axis of each tensor is found has packages of its own, because it needs
// neither a finished plan nor the execution: batchaxis (candidates, below this package),
// isolation (runs that prove one) and planner, which decides.
package plan
