// Package glibc reads which version of the GNU C library an ELF file needs, and which one a C library is.
package glibc

import (
	"debug/elf"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Needed returns the latest version of glibc whose symbols a library or program names, such as "2.34"; "" if it names none.
func Needed(path string) (latest string, err error) {
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

// Version returns the version of a C library. shown is its path as errors name it.
func Version(path, shown string) (latest string, err error) {
	file, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the C library %s: %w", shown, err)
	}
	defer file.Close()
	versions, err := file.DynamicVersions()
	if err != nil {
		return "", fmt.Errorf("read the versions of %s: %w", shown, err)
	}
	for _, version := range versions {
		latest = later(latest, version.Name)
	}
	if latest == "" {
		return "", fmt.Errorf("%s is not glibc: it has no version GLIBC_2.x", shown)
	}
	return latest, nil
}

// later returns the later one of a version and of a name such as GLIBC_2.34; other names are ignored.
func later(version, name string) string {
	if number, ok := strings.CutPrefix(name, "GLIBC_"); ok && number[0] >= '0' && number[0] <= '9' && Older(version, number) {
		return number
	}
	return version
}

// Older reports whether version a is before b: 2.9 is before 2.34, and "" before all.
func Older(a, b string) bool { return slices.Compare(numbers(a), numbers(b)) < 0 }

func numbers(version string) (list []int) {
	for part := range strings.SplitSeq(version, ".") {
		if n, err := strconv.Atoi(part); err == nil {
			list = append(list, n)
		}
	}
	return list
}
