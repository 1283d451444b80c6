package doctor

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
		needs, err := glibcNeeds(path)
		if err != nil {
			return nil, err
		}
		found = append(found, Library{path, needs})
	}
	return found, nil
}

// glibcNeeds returns the latest version of glibc that a library names.
func glibcNeeds(path string) (latest string, err error) {
	file, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the library %s: %w", path, err)
	}
	defer file.Close()
	needs, err := file.DynamicVersionNeeds()
	if err != nil {
		return "", fmt.Errorf("read the versions that %s needs: %w", path, err)
	}
	for _, library := range needs {
		for _, version := range library.Needs {
			latest = later(latest, version.Dep)
		}
	}
	return latest, nil
}

// readLibc reads the version of a C library; shown is its path as a report names it.
func readLibc(path, shown string) (*Libc, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the C library %s: %w", path, err)
	}
	defer file.Close()
	versions, err := file.DynamicVersions()
	if err != nil {
		return nil, fmt.Errorf("read the versions of %s: %w", path, err)
	}
	libc := &Libc{Path: shown}
	for _, version := range versions {
		libc.Version = later(libc.Version, version.Name)
	}
	if libc.Version == "" {
		return nil, fmt.Errorf("%s is not glibc: it has no version GLIBC_2.x", path)
	}
	return libc, nil
}

// later returns the later one of a version and of a name such as GLIBC_2.34; other names are ignored.
func later(version, name string) string {
	if number, ok := strings.CutPrefix(name, "GLIBC_"); ok && number[0] >= '0' && number[0] <= '9' && older(version, number) {
		return number
	}
	return version
}

// older compares versions such as 2.9 and 2.34.
func older(a, b string) bool { return slices.Compare(numbers(a), numbers(b)) < 0 }

func numbers(version string) (list []int) {
	for part := range strings.SplitSeq(version, ".") {
		if n, err := strconv.Atoi(part); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// telemetryVariable is read by the builds of ONNX Runtime that have telemetry.
const telemetryVariable = "ORT_DISABLE_TELEMETRY"

// reports reports whether a build of ONNX Runtime has telemetry.
func reports(path string) bool {
	content, err := os.ReadFile(path)
	return err == nil && bytes.Contains(content, []byte(telemetryVariable))
}
