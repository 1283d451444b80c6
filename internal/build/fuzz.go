package build

import (
	"errors"
	"fmt"
)

// fuzzTarget is a fuzz target and how many inputs it gets, as many as take some
// seconds; all targets together take about half a minute of two idle processors.
// They are counted, because the go command now and then takes the end of a time
// for a failure.
type fuzzTarget struct {
	folder, name string
	inputs       int
}

// fuzzTargets are all that there are.
var fuzzTargets = []fuzzTarget{
	{"./backend/config", "FuzzAssignments", 60_000},
	{"./backend", "FuzzComplete", 40_000},
	{"./backend/plan/planner", "FuzzInitialValue", 60_000},
	{"./backend", "FuzzModel", 3_000},
	{"./backend/plan/planner", "FuzzNPY", 60_000},
	{"./backend", "FuzzParseConfig", 60_000},
	{"./backend/config", "FuzzParsePairs", 60_000},
	{"./backend/config", "FuzzParseParameters", 15_000},
	{"./internal/cli", "FuzzInspect", 3_000},
	{"./internal/cli/migrate", "FuzzMigrate", 60_000},
	{"./internal/onnxfile", "FuzzOperators", 100_000},
	{"./internal/statestore", "FuzzParse", 60_000},
	{"./internal/statestore", "FuzzRoundTrip", 60_000},
	{"./internal/tensor", "FuzzShape", 100_000},
	{"./ortrunner", "FuzzCheckStrings", 100_000},
}

// fuzz runs every fuzz target for some seconds. The inputs that are kept in
// testdata/fuzz run with the other tests too. An input that finds something new is
// hardly made smaller: by itself the go command takes up to a minute for each.
func (t *tree) fuzz() error {
	var faults []error
	for _, f := range fuzzTargets {
		faults = append(faults, t.run("go", "test", f.folder, "-run", "^$", "-fuzz", "^"+f.name+"$",
			"-fuzztime", fmt.Sprintf("%dx", f.inputs), "-fuzzminimizetime", "100x"))
	}
	return errors.Join(faults...)
}
