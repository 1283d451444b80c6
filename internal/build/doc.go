// Package build is what go run build.go does. It is the one place that knows
// how the library, its Python environment and the example models are made, and
// how everything is checked.
//
// A [recipe] makes something only when what it is made from has changed. A
// [step] is a part of a verb that is timed and reported. All commands are run,
// and shown, by a [shell].
package build
