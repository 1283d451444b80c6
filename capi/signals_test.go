package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/cuda"
	"tritonstateful/internal/cuda/fakedriver"
	"tritonstateful/internal/faketriton"
	"tritonstateful/internal/status"
)

// Signal handlers belong to the process, and what a server does to them cannot
// be undone: each story of signalStories runs in a process of its own.
var signalStories = map[string]struct {
	story func(t *testing.T, execute func() *faketriton.Request)
	// driver: when it runs, the server has loaded a model for a GPU, whose driver
	// took the handlers that the server had taken before.
	driver bool
	// handled: the server's own handler ends the story.
	handled bool
}{
	"nil dereference after the server took the handlers": {
		story: func(t *testing.T, execute func() *faketriton.Request) {
			faketriton.TakeSignals()
			for range 10 {
				refused(t, execute(), status.Internal, "nil pointer dereference")
			}
		},
	},
	"warm-up before the server took the handlers": {
		story: func(t *testing.T, execute func() *faketriton.Request) {
			refused(t, execute(), status.Internal, "nil pointer dereference")
			faketriton.TakeSignals()
			refused(t, execute(), status.Internal, "nil pointer dereference")
			faketriton.TakeSignals() // and once more, by whomever
			refused(t, execute(), status.Internal, "nil pointer dereference")
		},
	},
	"handlers run on the alternate stack": {
		story: func(t *testing.T, execute func() *faketriton.Request) {
			faketriton.TakeSignals()
			taken := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGABRT, syscall.SIGSEGV}
			for _, signal := range taken {
				require.False(t, faketriton.OnStack(signal))
			}
			for range 7 { // one batch looks at one of seven
				execute()
			}
			for _, signal := range taken {
				require.True(t, faketriton.OnStack(signal), signal)
			}
		},
	},
	"another library in front": {
		story: func(t *testing.T, execute func() *faketriton.Request) {
			faketriton.TakeSignals()
			execute()
			faketriton.PutForwarder()
			refused(t, execute(), status.Internal, "nil pointer dereference")
			require.True(t, faketriton.ForwarderIsFirst(), "two such libraries must not overtake each other forever")
			require.Equal(t, 1, faketriton.Forwarded())
		},
	},
	"another library in front of Go, before any batch": {
		story: func(t *testing.T, execute func() *faketriton.Request) {
			faketriton.PutForwarder()
			refused(t, execute(), status.Internal, "nil pointer dereference")
		},
	},
	"fault elsewhere": {
		handled: true,
		story: func(_ *testing.T, execute func() *faketriton.Request) {
			faketriton.TakeSignals()
			execute()
			faketriton.FaultElsewhere()
		},
	},
	"driver of a GPU, and nil dereferences": {
		driver: true,
		story: func(t *testing.T, execute func() *faketriton.Request) {
			for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGABRT, syscall.SIGSEGV, syscall.SIGUSR2, syscall.SIGILL} {
				require.True(t, faketriton.OnStack(signal), signal)
			}
			for range 10 {
				refused(t, execute(), status.Internal, "nil pointer dereference")
			}
		},
	},
	"driver of a GPU, and the server is to stop": {
		driver: true, handled: true,
		story: func(t *testing.T, _ func() *faketriton.Request) {
			require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
			select {}
		},
	},
	"driver of a GPU, and a fault elsewhere": {
		driver: true, handled: true,
		story: func(_ *testing.T, execute func() *faketriton.Request) {
			execute()
			faketriton.FaultElsewhere()
		},
	},
	"signal from outside": {
		handled: true,
		story: func(t *testing.T, execute func() *faketriton.Request) {
			faketriton.TakeSignals()
			execute()
			require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGSEGV))
			select {}
		},
	},
}

const (
	storyVariable  = "STATEFUL_SIGNAL_STORY"
	driverVariable = "STATEFUL_SIGNAL_DRIVER"
)

func TestSignals(t *testing.T) {
	if name := os.Getenv(storyVariable); name != "" {
		runScenario(t, name)
		return
	}
	driver := fakedriver.Library(t, "SIGNALS", "1")
	for name, story := range signalStories {
		t.Run(name, func(t *testing.T) {
			child := exec.Command(os.Args[0], "-test.run=^TestSignals$")
			child.Env = append(os.Environ(), storyVariable+"="+name, driverVariable+"="+driver)
			output, err := child.CombinedOutput()
			if story.handled {
				require.Equal(t, faketriton.Handled, child.ProcessState.ExitCode(), string(output))
			} else {
				require.NoError(t, err, string(output))
			}
		})
	}
}

// runScenario runs batches with an instance that dereferences nil in every batch.
func runScenario(t *testing.T, name string) {
	in := newEcho()
	in.execute = func(backend.Batch) { mistakes["nil dereference"]() }
	load := func() error { return nil }
	s := serveModel(t, fakeModel{func(backend.InstanceInfo) (executor, error) { return in, load() }})
	if signalStories[name].driver {
		faketriton.TakeSignals()
		taken := false
		load = func() error {
			_, err := cuda.OpenLibrary(os.Getenv(driverVariable))
			taken = !faketriton.OnStack(syscall.SIGTERM)
			return err
		}
		second := faketriton.NewInstance(s.model, "m_gpu", 2, 0)
		defer second.Delete()
		require.NoError(t, second.Initialize())
		require.True(t, taken, "the driver has taken the handlers")
		require.NoError(t, second.Finalize())
	}
	signalStories[name].story(t, func() *faketriton.Request {
		rs := s.execute(t, echoCall(1, 1, 1))
		return rs[0]
	})
}
