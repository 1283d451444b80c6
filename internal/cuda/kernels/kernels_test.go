package kernels

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPTX compiles move.cu again and compares. The compiler is 90 MB, so it is
// used only where scripts/make_ptx.py was run before.
func TestPTX(t *testing.T) {
	for _, source := range []string{"move.cu", "move.h"} { // so that go test knows what the result depends on
		_, err := os.ReadFile(source)
		require.NoError(t, err)
	}
	root := filepath.Join("..", "..", "..")
	out, err := exec.Command("python3", filepath.Join(root, "scripts", "make_ptx.py"), "--check", "--offline").CombinedOutput()
	exit, _ := errors.AsType[*exec.ExitError](err)
	if errors.Is(err, exec.ErrNotFound) || exit != nil && exit.ExitCode() == 3 {
		t.Skipf("the compiler is not at hand: %s", out)
	}
	require.NoError(t, err, "%s", out)
}

// TestLabel: drivers since CUDA 10.1 and GPUs since Pascal take the PTX.
func TestLabel(t *testing.T) {
	require.Contains(t, PTX, "\n.version 6.4\n.target sm_60\n")
	require.Contains(t, PTX, ".visible .entry gather(")
	require.Contains(t, PTX, ".visible .entry scatter(")
}
