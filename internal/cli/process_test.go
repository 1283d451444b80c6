package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// argsVariable makes the test binary the command, with these arguments.
const argsVariable = "TRITONSTATEFUL_TEST_ARGS"

func TestMain(m *testing.M) {
	if args := os.Getenv(argsVariable); args != "" {
		os.Exit(Main(strings.Split(args, "\n"), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// process is the command as a process of its own.
func process(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), self)
	c.Env = append(os.Environ(), argsVariable+"="+strings.Join(args, "\n"))
	return c
}

// TestFullDisk: a result that is cut off is a failure, with text and with JSON.
func TestFullDisk(t *testing.T) {
	for _, args := range [][]string{{"doctor", "--rules"}, {"doctor", "--rules", "--json"}, {"--help"}, {"completion", "bash"}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		defer full.Close()
		var errs bytes.Buffer
		c := process(t, args...)
		c.Stdout, c.Stderr = full, &errs
		require.Error(t, c.Run(), args)
		require.Equal(t, exitFailed, c.ProcessState.ExitCode(), args)
		require.Contains(t, errs.String(), "no space left on device", args)
	}
}

// TestClosedPipe: a reader that has seen enough ends the command, as it does others.
func TestClosedPipe(t *testing.T) {
	c := process(t, "doctor", "--rules")
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, out.Close())
	err = c.Run()
	require.Error(t, err)
	require.Equal(t, syscall.SIGPIPE, c.ProcessState.Sys().(syscall.WaitStatus).Signal(), err)
}

// TestInterruptedLoad: the result of the time until then, and no failures.
func TestInterruptedLoad(t *testing.T) {
	address := (&fakeTriton{}).start(t)
	c := process(t, "load", address, "vad", "--shape", "input=1,512", "--duration", "1m", "--warmup", "0s", "--json")
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	time.Sleep(time.Second)
	require.NoError(t, c.Process.Signal(os.Interrupt))
	var r loading
	require.NoError(t, json.NewDecoder(bufio.NewReader(out)).Decode(&r))
	require.NoError(t, c.Wait())
	require.Positive(t, r.Steps)
	require.Zero(t, r.Failed, r.Failures)
}

// TestInterruptedCheck: no temporary files are left.
func TestInterruptedCheck(t *testing.T) {
	scratch := t.TempDir()
	t.Setenv("TMPDIR", scratch)
	c := process(t, withRuntime(t, "check", repository(t, "sums", oldest, sums()), "--steps", "2000")...)
	require.NoError(t, c.Start())
	left := func() []string {
		found, err := filepath.Glob(filepath.Join(scratch, "tritonstateful-*"))
		require.NoError(t, err)
		return found
	}
	require.Eventually(t, func() bool { return len(left()) > 0 }, time.Minute, time.Millisecond)
	require.NoError(t, c.Process.Signal(os.Interrupt))
	require.Error(t, c.Wait())
	require.Equal(t, syscall.SIGINT, c.ProcessState.Sys().(syscall.WaitStatus).Signal())
	require.Empty(t, left())
}
