//go:build ignore

// Builds, tests, serves and measures the stateful backend: go run build.go help
package main

import (
	"os"

	"tritonstateful/internal/build"
)

func main() {
	os.Exit(build.Main(os.Args[1:]))
}
