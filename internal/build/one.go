package build

import (
	"errors"
	"slices"
	"strings"
)

const benchModule = "internal/bench"

// testSome runs the tests that the arguments name, as go test or pytest take
// them, with the libraries that they need.
func (t *tree) testSome(args []string) error {
	if err := t.buildForTests(); err != nil {
		return err
	}
	ours, bench, python := splitTests(args)
	var err error
	if len(ours) > 0 {
		err = t.goTest(nil, ours...)
	}
	if len(bench) > 0 {
		err = errors.Join(err, t.in(benchModule).run("go", append([]string{"test"}, bench...)...))
	}
	if len(python) > 0 {
		err = errors.Join(err, t.run(t.python(), append([]string{"-m", "pytest"}, python...)...))
	}
	return err
}

// splitTests deals arguments out to go test in our module, go test in that of
// the benchmarks, and pytest. A package begins with "./"; a Python test is a
// file; -k, with what follows, is pytest's. All other arguments are flags, of go
// test if there is a package or no Python test.
func splitTests(args []string) (ours, bench, python []string) {
	var flags []string
	files := false
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case strings.HasPrefix(arg, "./"+benchModule):
			bench = append(bench, "."+strings.TrimPrefix(arg, "./"+benchModule))
		case strings.HasPrefix(arg, "./"):
			ours = append(ours, arg)
		case strings.Contains(arg, ".py"):
			python, files = append(python, arg), true
		case arg == "-k" && i+1 < len(args):
			python = append(python, arg, args[i+1])
			i++
		default:
			flags = append(flags, arg)
		}
	}
	if len(python) > 0 && !files {
		python = append(python, "scripts/e2e")
	}
	switch {
	case len(ours)+len(bench) == 0 && len(python) > 0:
		python = append(python, flags...)
	case len(ours)+len(bench) == 0:
		ours = slices.Concat(flags, []string{"./..."})
	default:
		if len(ours) > 0 {
			ours = append(ours, flags...)
		}
		if len(bench) > 0 {
			bench = append(bench, flags...)
		}
	}
	return ours, bench, python
}
