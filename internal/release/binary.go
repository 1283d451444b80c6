package release

import (
	"debug/elf"
	"fmt"
	"slices"

	"tritonstateful/internal/glibc"
)

// A binary is what a program or library needs of a system, and offers to others.
type binary struct {
	machine elf.Machine
	glibc   string   // the latest version that it names
	needed  []string // libraries that it opens
	exports []string // functions, sorted
}

func readBinary(path string) (*binary, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	defer file.Close()
	b := &binary{machine: file.Machine}
	if b.needed, err = file.ImportedLibraries(); err != nil {
		return nil, fmt.Errorf("read the libraries that %s needs: %w", path, err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("read the symbols of %s: %w", path, err)
	}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			b.exports = append(b.exports, s.Name)
		}
	}
	slices.Sort(b.exports)
	b.glibc, err = glibc.Needed(path)
	return b, err
}
