package cli

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"tritonstateful/ortrunner"
)

// backendFolder is where a server looks for this backend unless it is told otherwise.
const backendFolder = "/opt/tritonserver/backends/stateful"

// runtime opens ONNX Runtime: that of --onnxruntime, or the one of the backend. It logs nothing: trial runs of a model fail on
// purpose, and other errors come back from the calls.
func (c *command) runtime() (*ortrunner.Runtime, error) {
	libraries := []string{c.library}
	if c.library == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding ONNX Runtime next to this command: %w; set --onnxruntime", err)
		}
		if resolved, err := filepath.EvalSymlinks(self); err == nil {
			self = resolved
		}
		libraries = backendRuntimes(self)
	}
	library, err := firstThatExists(libraries)
	if err != nil {
		return nil, err
	}
	const fatal = 4
	return ortrunner.New(ortrunner.Options{Library: library, LogLevel: fatal, Log: slog.New(slog.DiscardHandler)})
}

// backendRuntimes are the paths at which the backend's ONNX Runtime can be: next to a command that was installed with it, as in
// an unpacked archive, and in the server's backends folder.
func backendRuntimes(command string) []string {
	const name = "libonnxruntime_stateful.so"
	return []string{
		filepath.Join(filepath.Dir(command), "..", "backends", "stateful", name),
		filepath.Join(backendFolder, name),
	}
}

// firstThatExists returns the first of the paths of ONNX Runtime that there is.
func firstThatExists(libraries []string) (string, error) {
	for _, library := range libraries {
		if _, err := os.Stat(library); err == nil {
			return library, nil
		}
	}
	return "", fmt.Errorf("there is no ONNX Runtime at %s: want --onnxruntime with the path of a libonnxruntime.so, version 1.29 "+
		"or later (in the archive for GPUs, add_onnxruntime_gpu.py adds it)", strings.Join(libraries, " or "))
}
