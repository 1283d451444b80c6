// Package kernels holds the backend's device code: its CUDA source, and the PTX
// that was made of it, which the driver compiles for whatever GPU it finds.
// scripts/make_ptx.py generates the PTX.
package kernels

import _ "embed"

// PTX has the kernels gather and scatter of move.cu.
//
//go:embed move.ptx
var PTX string
