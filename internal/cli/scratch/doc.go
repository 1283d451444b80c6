// Package scratch makes folders for temporary files that are gone when the command is, also if it is interrupted.
//
//	folder, remove, err := scratch.Folder("tritonstateful-check-")
//	defer remove()
//
// It is safe for concurrent use, though an interrupt removes one folder only.
package scratch
