package build

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A tree is the repository and what is built in it. Its commands run in the
// root, or in folder below it.
type tree struct {
	ctx    context.Context
	root   string
	folder string
	env    []string // "NAME=value", in addition to our own environment
}

// path returns the absolute path of something in the repository.
func (t *tree) path(elements ...string) string {
	return filepath.Join(t.root, filepath.Join(elements...))
}

// with returns a tree whose commands also get the given variables.
func (t *tree) with(env ...string) *tree {
	other := *t
	other.env = slices.Concat(t.env, env)
	return &other
}

// in returns a tree whose commands run in a folder below the root.
func (t *tree) in(folder string) *tree {
	other := *t
	other.folder = folder
	return &other
}

// run shows a command and runs it; its output is ours.
func (t *tree) run(name string, args ...string) error {
	return t.runTo(os.Stdout, name, args...)
}

// runTo is run with another standard output.
func (t *tree) runTo(out io.Writer, name string, args ...string) error {
	shown := strings.Join(slices.Concat([]string{"+"}, t.env, []string{name}, args), " ")
	fmt.Println(strings.ReplaceAll(shown, t.root+"/", ""))
	cmd := t.command(name, args)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, os.Stderr
	return explain(name, cmd.Run())
}

// output runs a command without showing it and returns what it prints.
func (t *tree) output(name string, args ...string) (string, error) {
	printed, err := t.command(name, args).Output()
	return strings.TrimSpace(string(printed)), explain(name, err)
}

func (t *tree) command(name string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(t.ctx, name, args...)
	cmd.Dir = t.path(t.folder)
	// The ONNX Runtime of Python's scripts must not report anything home; that of the backend is told so by the backend.
	cmd.Env = slices.Concat(os.Environ(), []string{"ORT_DISABLE_TELEMETRY=1"}, t.env)
	// Ask first: a test stops its server when it is interrupted.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	return cmd
}

// explain says in an error which command failed, and what it printed as errors
// if that was not shown.
func explain(name string, err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%s: %w\n%s", name, err, exit.Stderr)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// refresh calls produce unless output, and what else it makes, exists and was made
// from the same content.
// The stamp, a hash of the content, is written last: what was interrupted is
// made again.
func (t *tree) refresh(output, content string, produce func() error, others ...string) error {
	relative, err := filepath.Rel(t.root, output)
	if err != nil {
		return err
	}
	stamp := t.path("build", "stamps", strings.ReplaceAll(relative, "/", "-"))
	want := fmt.Sprintf("%x\n", sha256.Sum256([]byte(content)))
	missing := func(path string) bool {
		_, err := os.Stat(path)
		return err != nil
	}
	made, err := os.ReadFile(stamp)
	if err == nil && string(made) == want && !missing(output) && !slices.ContainsFunc(others, missing) {
		return nil
	}
	if err := errors.Join(os.RemoveAll(stamp), produce()); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(stamp), 0o755); err != nil {
		return err
	}
	return os.WriteFile(stamp, []byte(want), 0o644)
}

// contents returns the contents of files, one after the other.
func (t *tree) contents(paths ...string) (string, error) {
	var all strings.Builder
	for _, path := range paths {
		content, err := os.ReadFile(t.path(path))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&all, "%s %d\n%s\n", path, len(content), content)
	}
	return all.String(), nil
}

// one returns the only file that matches a pattern below the root.
func (t *tree) one(pattern string) (string, error) { return onlyMatch(t.path(pattern)) }

func onlyMatch(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%d files match %s: want one; run go run build.go clean and build again", len(found), pattern)
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// inOrder calls functions one after the other, up to the first error.
func inOrder(calls ...func() error) error {
	for _, call := range calls {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}

// locked calls functions one after the other while no other process builds in
// this tree. The lock goes with the process, however it ends.
func (t *tree) locked(calls ...func() error) error {
	if err := os.MkdirAll(t.path("build"), 0o755); err != nil {
		return err
	}
	lock, err := os.Create(t.path("build", "lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		fmt.Println("waiting for another build in this folder")
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			return fmt.Errorf("lock %s: %w", lock.Name(), err)
		}
	}
	return inOrder(calls...)
}

// A step is a part of go run build.go test that is timed and reported.
type step struct {
	name string
	run  func() error
}

// steps runs all steps and reports them at the end. A failed step does not keep
// the others from running, so that one run shows all that is wrong; an interrupt
// does.
func (t *tree) steps(steps ...step) error {
	var lines, failed []string
	for _, s := range steps {
		fmt.Printf("\n=== %s\n", s.name)
		start, result := time.Now(), "ok"
		err := t.ctx.Err()
		if err == nil {
			err = s.run()
		}
		if err != nil {
			result, failed = "FAILED", append(failed, s.name)
			fmt.Println(err)
		}
		lines = append(lines, fmt.Sprintf("  %-6s  %-16s %8s", result, s.name, time.Since(start).Round(100*time.Millisecond)))
	}
	fmt.Println("\n" + strings.Join(lines, "\n"))
	if len(failed) > 0 {
		return fmt.Errorf("FAILED: %s", strings.Join(failed, ", "))
	}
	fmt.Println("PASSED")
	return nil
}
