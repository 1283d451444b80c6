package build

import (
	"errors"
	"strings"
)

// fuzzed are the packages with fuzz targets, which need no C.
var fuzzed = []string{"./backend", "./internal/tensor"}

// fuzzTime is how long each target is fuzzed, some seconds. It counts calls,
// because the go command now and then takes the end of a time for a failure.
const fuzzTime = "10000x"

// fuzz runs every fuzz target for some seconds. The inputs that are kept in
// testdata/fuzz run with the other tests too.
func (t *tree) fuzz() error {
	pure := t.with("CGO_ENABLED=0")
	var faults []error
	for _, folder := range fuzzed {
		listed, err := pure.output("go", "test", folder, "-list", "^Fuzz")
		if err != nil {
			return err
		}
		for line := range strings.Lines(listed) {
			target := strings.TrimSpace(line)
			if strings.HasPrefix(target, "Fuzz") {
				faults = append(faults, pure.run("go", "test", folder, "-run", "^$", "-fuzz", "^"+target+"$", "-fuzztime", fuzzTime))
			}
		}
	}
	return errors.Join(faults...)
}
