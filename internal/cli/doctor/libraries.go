package doctor

import (
	"bytes"
	"os"
	"path/filepath"

	"tritonstateful/internal/glibc"
)

// A Library is one of the backend that is installed.
type Library struct {
	Path  string
	Needs string // the latest version of glibc whose symbols it has, such as 2.34
}

// Libc is the C library of the system.
type Libc struct {
	Path    string
	Version string
}

// backendFiles are those of an installed backend that a linker opens.
var backendFiles = []string{"libtriton_stateful.so", "libtriton_stateful_go.so", ourRuntime}

// readLibraries reads those of a folder with the backend; files that are missing are left out.
func readLibraries(folder string) (found []Library, err error) {
	for _, name := range backendFiles {
		path := filepath.Join(folder, name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		needs, err := glibc.Needed(path)
		if err != nil {
			return nil, err
		}
		found = append(found, Library{path, needs})
	}
	return found, nil
}

// readLibc reads the version of a C library; shown is its path as a report names it.
func readLibc(path, shown string) (*Libc, error) {
	version, err := glibc.Version(path, shown)
	if err != nil {
		return nil, err
	}
	return &Libc{Path: shown, Version: version}, nil
}

// telemetryVariable is read by the builds of ONNX Runtime that have telemetry.
const telemetryVariable = "ORT_DISABLE_TELEMETRY"

// reports reports whether a build of ONNX Runtime has telemetry.
func reports(path string) bool {
	content, err := os.ReadFile(path)
	return err == nil && bytes.Contains(content, []byte(telemetryVariable))
}
