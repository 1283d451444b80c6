// Package statebuffer keeps the states of sequences: which sequence owns which
// slot, where the slots lie in memory, and how they move into the batched tensors
// of a run and back. It is pure Go and knows neither Triton nor ONNX Runtime.
//
// The nouns:
//
//   - A state is one tensor of a model that a step reads and writes anew. Its
//     [Layout] says how one lane of it lies in a batched tensor.
//   - A [Slot] is room for one sequence's value of every state. Slots come in
//     chunks, which a [Store] allocates and frees as sequences come and go,
//     within the limits of a [Sizing].
//   - A [Sequence] is a client's stream of requests; it owns one slot from its
//     START on. The [Store] finds it by its [Key] and forgets it when it ends,
//     idles too long or has to make room.
//   - A cell is room for one value of every state in memory that the host can
//     address. Large values stay in the cells that a run wrote, and a later run
//     reads them there (roam.go); small ones lie in their slots and are copied.
//   - A step is Gather (states to the model's input tensors), the run, and then
//     either Commit (output tensors to states) or Abort. Until Commit nothing that
//     is stored changes, so a failed run leaves every state as it was.
//
// A START reads the state's initial value and never the slot it was given, so
// that no byte of an earlier owner can be seen.
//
// Memory is reached only through the [Memory] interface. [Heap] implements it
// over Go's heap, for tests; ONNX Runtime's host and device memory live in
// package ortrunner.
//
// One goroutine uses a Store: the one that executes the instance's batches.
package statebuffer
