// Package build is what go run build.go does. It is the one place that knows
// how the library, its Python environment and the example models are made, and
// how everything is checked.
//
// main.go has the verbs, library.go and python.go make things, check.go and
// one.go test them; tree.go runs commands, each of which it shows. What is
// slow to make is made again only after a change: see [tree.refresh].
package build
