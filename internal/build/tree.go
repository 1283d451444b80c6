package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// A tree is the repository and what is built in it. Its shell runs in the root.
type tree struct {
	shell
}

func newTree(ctx context.Context, root string) *tree {
	return &tree{shell{ctx: ctx, dir: root}}
}

// path returns the absolute path of something in the repository.
func (t *tree) path(elements ...string) string {
	return filepath.Join(append([]string{t.dir}, elements...)...)
}

func (t *tree) cook(r recipe) error {
	return r.cook(t.path("build", "stamps"))
}

// one returns the only file that matches the pattern, which is relative to the
// root.
func (t *tree) one(pattern string) (string, error) {
	found, err := filepath.Glob(t.path(pattern))
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%d files match %s: want one; run go run build.go clean and build again", len(found), pattern)
	}
	return found[0], nil
}

// build makes everything that users need, each part only when it must.
func (t *tree) build() error {
	if err := t.alone(t.compiler, t.environment, t.models, t.library); err != nil {
		return err
	}
	fmt.Println("built", filepath.Join("build", "install", "backends", "stateful"))
	return nil
}

// buildForTests also makes what only tests use.
func (t *tree) buildForTests() error {
	if err := t.build(); err != nil {
		return err
	}
	return t.alone(t.faultyLibrary)
}

// alone makes the parts one after the other while no other process builds in
// this tree. The lock goes with the process, however it ends.
func (t *tree) alone(parts ...func() error) error {
	if err := os.MkdirAll(t.path("build"), 0o755); err != nil {
		return err
	}
	lock, err := os.Create(t.path("build", "lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		fmt.Println("waiting for another build in this folder")
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	for _, part := range parts {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// serve runs tritonserver on the example models until it is interrupted.
func (t *tree) serve(args []string) error {
	err := t.script("tritonserver.py", args)
	if t.ctx.Err() != nil {
		return nil
	}
	return err
}

// bench measures the built library.
func (t *tree) bench(args []string) error {
	return t.script("bench.py", args)
}

// soak lets clients do as they please with the built library.
func (t *tree) soak(args []string) error {
	return t.script("soak.py", args)
}

// script builds, then runs a script in the Python environment.
func (t *tree) script(name string, args []string) error {
	if err := t.build(); err != nil {
		return err
	}
	return t.run(t.python(), append([]string{t.path("scripts", name)}, args...)...)
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
