// Package statebuffer keeps the states of sequences: which sequence owns which slot,
// where its values are in memory, and how they get into the batched tensors of a run
// and back. It is pure Go and knows neither Triton nor ONNX Runtime.
//
// The nouns:
//
//   - A state is one tensor of a model that a step reads and writes. Its [Layout] says
//     how one lane of it lies in a batched tensor: in pieces, which are contiguous bytes.
//   - A lane is the position of one sequence along the batch axis of a run. A padding
//     lane belongs to none. The width of a run is the number of its lanes.
//   - A [Slot] is room for one sequence's value of every state. Slots come in chunks,
//     which a [Store] allocates and frees as sequences come and go, within the limits
//     of a [Sizing].
//   - A [Sequence] is a client's stream of requests; it owns one slot from its START
//     on. The Store finds it by its [Key] and forgets it when it ends, idles too long or
//     is evicted. What remains of a sequence that was lost is a tombstone, with a
//     [LossReason].
//   - A step is [Store.Gather] (states to the model's input tensors), the run, and then
//     [Store.Commit] (output tensors to states), [Store.Abort] or [Store.Undo]. Until
//     Commit no stored value changes, so a failed run leaves every state as it was.
//
// A START reads the state's initial value and never the slot it was given, so that no
// byte of an earlier owner can be seen.
//
// A placement is where the values of fixed shape are. There are two: small values are
// copied from their slots and back (copied.go). Large values stay in place, in the
// memory that a run wrote, and a later run reads them there (inplace.go). That memory
// is slabs of cells; a cell is room for one lane's value of every state. States of
// varying shape have a block of memory each (varying.go).
//
// A [Snapshot] has the values of a sequence after a step, for other goroutines to read while
// steps go on; [Store.Restore] begins a sequence with such values. Large values in place are
// not copied for it, their cells are pinned (pin.go).
//
// Memory is reached only through the [Memory] interface. [Heap] implements it over Go's
// heap, for tests; ONNX Runtime's host and device memory are in package ortrunner.
// Package memorytest has one suite for all of them.
//
// One goroutine uses a Store: the one that executes the instance's batches. Only a Snapshot
// can be read and released by others.
package statebuffer
