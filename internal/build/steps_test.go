package build

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// ran returns the steps, made to note their names when they run.
func ran(names *[]string, steps ...step) []step {
	for i := range steps {
		name, run := steps[i].name, steps[i].run
		steps[i].run = func() error {
			*names = append(*names, name)
			return run()
		}
	}
	return steps
}

func passes() error { return nil }
func fails() error  { return errors.New("no") }

func TestStepsGoOnAfterAFailure(t *testing.T) {
	var names []string
	err := newTree(t.Context(), t.TempDir()).steps(ran(&names,
		step{name: "format", run: fails},
		step{name: "build", run: passes},
		step{name: "server", needsBuild: true, run: fails},
		step{name: "job", needsBuild: true, run: passes},
	))
	require.EqualError(t, err, "FAILED: format, server")
	require.Equal(t, []string{"format", "build", "server", "job"}, names)
}

func TestStepsThatNeedAFailedBuildAreSkipped(t *testing.T) {
	var names []string
	err := newTree(t.Context(), t.TempDir()).steps(ran(&names,
		step{name: "build", run: fails},
		step{name: "server", needsBuild: true, run: passes},
		step{name: "pure", run: passes},
	))
	require.EqualError(t, err, "FAILED: build, server")
	require.Equal(t, []string{"build", "pure"}, names)
}

func TestStepsEndWithAnInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var names []string
	err := newTree(ctx, t.TempDir()).steps(ran(&names,
		step{name: "first", run: func() error { cancel(); return nil }},
		step{name: "second", run: passes},
	))
	require.EqualError(t, err, "FAILED: second")
	require.Equal(t, []string{"first"}, names)
}
