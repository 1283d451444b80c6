package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
	s.env = append(s.env[:len(s.env):len(s.env)], env...)
	return s
}

// run runs a command; its output is ours.
func (s shell) run(name string, args ...string) error {
	s.show(name, args)
	cmd := s.command(name, args)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return explain(name, cmd.Run())
}

// output runs a command without showing it and returns what it prints.
func (s shell) output(name string, args ...string) (string, error) {
	printed, err := s.command(name, args).Output()
	return strings.TrimSpace(string(printed)), explain(name, err)
}

func (s shell) command(name string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(s.ctx, name, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), s.env...)
	// Ask first: a test stops its server when it is interrupted.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	return cmd
}

// show prints a command as it could be typed in the root of the repository.
func (s shell) show(name string, args []string) {
	words := append(s.env[:len(s.env):len(s.env)], name)
	for _, word := range append(words, args...) {
		word = strings.ReplaceAll(word, s.dir+"/", "")
		if strings.ContainsAny(word, " '\"") {
			word = fmt.Sprintf("%q", word)
		}
		words = append(words, word)
	}
	fmt.Println("+", strings.Join(words[len(s.env)+1:], " "))
}

// explain says in an error which command failed, and how.
func explain(name string, err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit):
		return fmt.Errorf("%s failed: %v", name, exit)
	default:
		return fmt.Errorf("%s cannot be run: %w", name, err)
	}
}
