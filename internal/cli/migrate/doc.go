// Package migrate rewrites a config.pbtxt for another backend: for this one from that of NVIDIA's
// stateful_backend or Triton's onnxruntime backend, and back.
//
// [Migrate] changes the text and nothing that it need not change, so that comments and the order
// of fields stay. text.go finds fields in the text; edit.go replaces them; stateful.go
// has the rules of this backend, and others.go those of the other two. docs/migrating-*.md describe them.
package migrate
