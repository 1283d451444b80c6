package config

import (
	"os"
	"path/filepath"

	"tritonstateful/internal/status"
)

// OperatorLibraries returns the paths of the libraries in model_operations: see FindLibrary.
func (c *Config) OperatorLibraries(folders ...string) (paths []string, err error) {
	for _, name := range c.ModelOperations.OpLibraryFilename {
		if name == "" {
			return nil, status.Errorf(status.InvalidArg, "model_operations { op_library_filename } has an empty name: want the path of a shared library, relative to the model's folder or absolute")
		}
		paths = append(paths, FindLibrary(name, folders...))
	}
	return paths, nil
}

// FindLibrary returns the path of a library. A relative name is that of a file in the first of the folders that has it, which
// are the version's and the model's. Else it is one that the system's loader finds: in the folder that the server was started
// in, or by LD_LIBRARY_PATH.
func FindLibrary(name string, folders ...string) string {
	if filepath.IsAbs(name) {
		return name
	}
	for _, folder := range folders {
		path := filepath.Join(folder, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return name
}
