package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// A verb is a word after go run build.go. It gets the arguments that follow.
type verb struct {
	name, help string
	run        func(t *tree, args []string) error
	hasHelp    bool // run answers -h
}

var verbs = []verb{
	{"build", "make the library, its Python environment and the example models (the default)", noArguments((*tree).build), false},
	{"test", "check and test everything, or only some: test [packages] [-run X] [scripts/e2e/test_x.py] [-k X]", (*tree).test, false},
	{"serve", "start tritonserver on the example models; serve -h lists its options", script("tritonserver.py"), true},
	{"bench", "measure requests/s and latencies on a real tritonserver; bench -h lists its options", script("bench.py"), true},
	{"soak", "load a real tritonserver with clients that misuse sequences; soak -h lists its options", script("soak.py"), true},
	{"drill", "kill servers and the state store under load; drill -h lists its options", script("drill.py"), true},
	{"matrix", "run the library in the older tritonservers of PyPI; matrix -h lists its options", script("matrix.py"), true},
	{"monitoring", "show the dashboard and the alerts to a real Prometheus; monitoring -h lists its options", script("monitoring.py"), true},
	{"chart", "test the Helm chart, with a Helm that is compiled first", noArguments((*tree).testChart), false},
	{"site", "make the documentation as a site, in build/site/html", noArguments((*tree).site), false},
	{"package", "make the archives of a release in build/dist; package -h lists its options", (*tree).pack, true},
	{"arm64", "build and test for arm64 on another machine, with an emulator", noArguments((*tree).arm64), false},
	{"lint", "run the linters and formatters of Go and Python", noArguments((*tree).lint), false},
	{"clean", "remove what was built", noArguments((*tree).clean), false},
}

// Main runs the verb that the arguments begin with, in the current folder, and
// returns the exit code.
func Main(args []string) int {
	name, args := "build", args
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	if isHelp(name) || name == "help" {
		usage()
		return 0
	}
	for _, v := range verbs {
		if v.name != name {
			continue
		}
		if !v.hasHelp && len(args) == 1 && isHelp(args[0]) {
			usage()
			return 0
		}
		return exitCode(name, run(v, args))
	}
	fmt.Fprintf(os.Stderr, "build.go: there is no verb %q\n\n", name)
	usage()
	return 2
}

func isHelp(arg string) bool { return arg == "-h" || arg == "--help" }

func usage() {
	fmt.Println("usage: go run build.go [verb]")
	for _, v := range verbs {
		fmt.Printf("  %-10s %s\n", v.name, v.help)
	}
	fmt.Printf("  %-10s %s\n", "help", "show this")
}

func exitCode(name string, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	return 1
}

// run gives the verb a tree. An interrupt ends the command that runs; the verb
// then returns its error, so that every command has ended before we do.
func run(v verb, args []string) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, "capi")); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not the root of the repository: run go run build.go where build.go is", root)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return v.run(&tree{ctx: ctx, root: root}, args)
}

func noArguments(run func(*tree) error) func(*tree, []string) error {
	return func(t *tree, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("unexpected argument %q: this verb takes none", args[0])
		}
		return run(t)
	}
}

// script returns a verb that builds, then runs a script of the folder scripts in
// the Python environment.
func script(name string) func(*tree, []string) error {
	return func(t *tree, args []string) error {
		if err := t.build(); err != nil {
			return err
		}
		err := t.run(t.python(), append([]string{t.path("scripts", name)}, args...)...)
		if name == "tritonserver.py" && t.ctx.Err() != nil {
			return nil // it runs until it is interrupted
		}
		return err
	}
}

// build makes everything that users need, each part only when it must.
func (t *tree) build() error {
	if err := t.locked(t.checkCompiler, t.environment, t.models, t.library, t.commandLine); err != nil {
		return err
	}
	fmt.Println("built", filepath.Join("build", "install", "backends", "stateful"), "and", filepath.Join("build", "install", "bin", commandFile))
	return nil
}

// buildForTests also makes what only tests use.
func (t *tree) buildForTests() error {
	if err := t.build(); err != nil {
		return err
	}
	return t.locked(t.faultyLibrary)
}

// clean removes everything that build makes.
func (t *tree) clean() error {
	made := []string{t.path("build")}
	for _, name := range []string{"1", "initial_state"} {
		found, err := filepath.Glob(t.path("models", "*", name))
		if err != nil {
			return err
		}
		made = append(made, found...)
	}
	for _, path := range made {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}
