package cli

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"tritonstateful/ortrunner"
)

// runtime opens ONNX Runtime: that of --onnxruntime, or the one that was installed with this command. It logs nothing:
// trial runs of a model fail on purpose, and other errors come back from the calls.
func (c *command) runtime() (*ortrunner.Runtime, error) {
	library := c.library
	if library == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding ONNX Runtime next to this command: %w; set --onnxruntime", err)
		}
		if resolved, err := filepath.EvalSymlinks(self); err == nil {
			self = resolved
		}
		library = filepath.Join(filepath.Dir(self), "..", "backends", "stateful", "libonnxruntime_stateful.so")
	}
	if _, err := os.Stat(library); err != nil {
		return nil, fmt.Errorf("ONNX Runtime is missing: %w: want --onnxruntime with the path of libonnxruntime.so, version 1.29 or later", err)
	}
	const fatal = 4
	return ortrunner.New(ortrunner.Options{Library: library, LogLevel: fatal, Log: slog.New(slog.DiscardHandler)})
}
