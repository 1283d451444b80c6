package build

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Tree is the repository and what is made in it.
type Tree struct {
	root string
}

// NewTree is the repository at root, an absolute path.
func NewTree(root string) *Tree { return &Tree{root: root} }

func (t *Tree) path(elements ...string) string {
	return filepath.Join(append([]string{t.root}, elements...)...)
}

// Serve runs tritonserver on the example models.
func (t *Tree) Serve(args []string) error {
	if err := t.Build(); err != nil {
		return err
	}
	return t.command(t.python(), append([]string{"scripts/tritonserver.py"}, args...)...).run()
}

// Bench measures.
func (t *Tree) Bench(args []string) error {
	if err := t.Build(); err != nil {
		return err
	}
	return t.command(t.python(), append([]string{"scripts/bench.py"}, args...)...).run()
}

// Clean removes all that was made.
func (t *Tree) Clean() error { return os.RemoveAll(t.path("build")) }

// command is a program to run in the repository's folder.
type command struct {
	*exec.Cmd
	shown string
}

func (t *Tree) command(name string, args ...string) *command {
	c := &command{Cmd: exec.Command(name, args...)}
	c.Dir, c.Stdout, c.Stderr = t.root, os.Stdout, os.Stderr
	c.shown = strings.ReplaceAll(strings.Join(append([]string{name}, args...), " "), t.root+string(filepath.Separator), "")
	return c
}

// env adds variables to the program's environment.
func (c *command) env(pairs ...string) *command {
	c.Env = append(c.Environ(), pairs...)
	c.shown = strings.Join(pairs, " ") + " " + c.shown
	return c
}

// in sets the folder to run in.
func (c *command) in(dir string) *command {
	c.Dir = dir
	return c
}

func (c *command) run() error {
	fmt.Println("+", c.shown)
	err := c.Run()
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%s is not installed: install it and try again (needed are Go, gcc and Python 3.11 or later with its venv module)", c.Args[0])
	case errors.As(err, &exit):
		return fmt.Errorf("%s: %w", c.shown, err)
	}
	return err
}

// newer tells whether target exists and is newer than every file of the sources,
// which are files or folders.
func newer(target string, sources ...string) bool {
	made, err := os.Stat(target)
	if err != nil {
		return false
	}
	for _, source := range sources {
		latest, err := latestChange(source)
		if err != nil || latest.After(made.ModTime()) {
			return false
		}
	}
	return true
}

func latestChange(source string) (latest time.Time, err error) {
	err = filepath.WalkDir(source, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.ModTime().After(latest) {
			latest = info.ModTime()
		}
		return err
	})
	return latest, err
}
