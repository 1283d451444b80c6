// Command tritonstateful looks at stateful ONNX models and serves them well: see docs/command.md.
package main

import (
	"os"

	"tritonstateful/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
