// Command tritonstateful looks at stateful ONNX models and serves them well: see docs/command.md.
package main

import (
	"os"

	"tritonstateful/internal/cli"
)

// version is that of this command. The build sets it, by -X main.version=v1.2.3.
var version = "unversioned"

func main() { os.Exit(cli.Main(os.Args[1:], version, os.Stdout, os.Stderr)) }
