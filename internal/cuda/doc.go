// Package cuda is the part of NVIDIA's CUDA driver API that this backend uses.
// The driver library is opened at run time; nothing of CUDA is needed to build
// or to load the backend, and on a machine without a driver [Open] says so with a
// [MissingError].
//
// The nouns:
//
//   - A [Driver] is the opened library, and the [Device]s that it has.
//   - A [Context] is a device in use: the device's primary context, which ONNX
//     Runtime uses too. It gives out memory, streams, events and modules.
//   - A [Stream] is a queue of work on the device. What is put in is done later,
//     in that order: host memory that a copy reads or writes must stay as it is
//     until the stream, or an [Event] recorded behind the copy, was waited for.
//
// Every call makes its context current to the calling thread, so that goroutines
// need not stay on one. Addresses of a device are uint64, and never pointers: the
// host cannot read them.
package cuda
