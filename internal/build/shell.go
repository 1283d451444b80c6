package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A shell runs commands in a folder and prints each before it runs.
type shell struct {
	ctx context.Context
	dir string
	env []string // on top of our own
}

// with returns a shell whose commands also get the given variables, "NAME=value".
func (s shell) with(env ...string) shell {
	s.env = slices.Concat(s.env, env)
	return s
}

// run runs a command; its output is ours.
func (s shell) run(name string, args ...string) error {
	s.show(name, args)
	cmd := s.command(name, args)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return explain(name, cmd.Run())
}

// runAndRead is run, and also returns what go test prints, which is all on one
// stream.
func (s shell) runAndRead(name string, args ...string) (string, error) {
	s.show(name, args)
	var printed strings.Builder
	cmd := s.command(name, args)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &printed), os.Stderr
	err := explain(name, cmd.Run())
	return printed.String(), err
}

// output runs a command without showing it and returns what it prints.
func (s shell) output(name string, args ...string) (string, error) {
	printed, err := s.command(name, args).Output()
	return strings.TrimSpace(string(printed)), explain(name, err)
}

func (s shell) command(name string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(s.ctx, name, args...)
	cmd.Dir = s.dir
	// The ONNX Runtime of Python's scripts is to report nothing home either; that of the backend sees to it by itself.
	cmd.Env = slices.Concat(os.Environ(), []string{"ORT_DISABLE_TELEMETRY=1"}, s.env)
	// Ask first: a test stops its server when it is interrupted.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	return cmd
}

// show prints a command, its paths relative to the root of the repository.
func (s shell) show(name string, args []string) {
	fmt.Print("+")
	for _, word := range slices.Concat(s.env, []string{name}, args) {
		word = strings.ReplaceAll(word, s.dir+"/", "")
		if word == "" || strings.ContainsAny(word, " '\"") {
			word = strconv.Quote(word)
		}
		fmt.Print(" ", word)
	}
	fmt.Println()
}

// explain says in an error which command failed, and how; with what it printed
// as errors, if that was not shown.
func explain(name string, err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s was interrupted: %w", name, err)
	case !errors.As(err, &exit):
		return fmt.Errorf("%s cannot be run: %w", name, err)
	case len(exit.Stderr) > 0:
		return fmt.Errorf("%s failed: %w\n%s", name, exit, exit.Stderr)
	default:
		return fmt.Errorf("%s failed: %w", name, exit)
	}
}
