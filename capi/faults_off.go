//go:build !faults

package main

import "tritonstateful/backend"

// withFaults is m itself: only a library that is built with the tag "faults"
// can be made to fail.
func withFaults(m model, _ backend.ModelInfo) model { return m }
