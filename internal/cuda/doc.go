// Package cuda wraps the part of NVIDIA's CUDA driver API that this backend uses.
// The driver library is opened at run time: CUDA is not needed to build or to load
// the backend. On a machine without a driver, [OpenLibrary] returns a [MissingError].
//
// The nouns:
//
//   - A [Driver] is the opened library, with its [Device]s.
//   - A [Context] is a device in use: the device's primary context, which ONNX
//     Runtime uses too. It allocates memory, streams, events and modules.
//   - A [Stream] is a queue of work on the device, which is done later and in order:
//     host memory that a copy reads or writes must stay unchanged until the caller
//     has waited for the stream, or for an [Event] recorded after the copy.
//
// Every call makes its context current to the calling thread, so goroutines need not
// stay on one. Device addresses are uint64, never pointers: the host cannot read them.
package cuda
