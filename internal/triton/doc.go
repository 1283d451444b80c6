// Package triton holds triton.h, the declarations of Triton's C ABI that package
// main in capi, its loader, the fake server of the tests (internal/faketriton) and
// the benchmark's do-nothing backend share. They include it by a relative path.
//
// It is a Go package only for the go command: capi imports it, so that a change
// of the header compiles capi again. Go code uses only the oldest version of the
// API that the backend works with.
package triton

import _ "embed"

// Header is the text of triton.h. The go command compiles an importer again when
// an embedded file changes, not when a header of another folder does.
//
//go:embed triton.h
var Header string
