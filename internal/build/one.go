package build

import (
	"errors"
	"slices"
	"strings"
)

// modules are the folders of the modules other than ours.
var modules = []string{"internal/bench", "clients/go"}

// inModules runs a command in the folder of each other module.
func (t *tree) inModules(name string, args ...string) error {
	var failed []error
	for _, module := range modules {
		failed = append(failed, t.in(module).run(name, args...))
	}
	return errors.Join(failed...)
}

// testSome runs the tests that the arguments name, as go test or pytest take
// them, with the libraries that they need.
func (t *tree) testSome(args []string) error {
	if err := t.buildForTests(); err != nil {
		return err
	}
	ours, others, python := splitTests(args)
	var err error
	if len(ours) > 0 {
		err = t.goTest(nil, ours...)
	}
	for _, module := range modules {
		if len(others[module]) > 0 {
			err = errors.Join(err, t.in(module).run("go", append([]string{"test"}, others[module]...)...))
		}
	}
	if len(python) > 0 {
		err = errors.Join(err, t.run(t.python(), append([]string{"-m", "pytest"}, python...)...))
	}
	return err
}

// splitTests deals arguments out to go test in our module, go test in the other
// modules, and pytest. A package begins with "./"; a Python test is a
// file; -k, with what follows, is pytest's. All other arguments are flags, of go
// test if there is a package or no Python test.
func splitTests(args []string) (ours []string, others map[string][]string, python []string) {
	var flags []string
	others = map[string][]string{}
	files := false
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case moduleOf(arg) != "":
			module := moduleOf(arg)
			others[module] = append(others[module], "."+strings.TrimPrefix(arg, "./"+module))
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
	case len(ours)+len(others) == 0 && len(python) > 0:
		python = append(python, flags...)
	case len(ours)+len(others) == 0:
		ours = slices.Concat(flags, []string{"./..."})
	default:
		if len(ours) > 0 {
			ours = append(ours, flags...)
		}
		for module, packages := range others {
			others[module] = append(packages, flags...)
		}
	}
	return ours, others, python
}

// moduleOf returns the other module that a package is in, or "".
func moduleOf(arg string) string {
	for _, module := range modules {
		if strings.HasPrefix(arg, "./"+module) {
			return module
		}
	}
	return ""
}
