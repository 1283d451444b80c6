package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/faketriton"
	"tritonstateful/internal/status"
)

// takesParameters is an instance that uses the parameters of its requests.
type takesParameters struct{ *fakeInstance }

func (takesParameters) TakesParameters() bool { return true }

// readParameters executes a request with those parameters, and returns it as the model saw it.
func readParameters(t *testing.T, parameters ...faketriton.Parameter) (seen *backend.Parameters, err error) {
	in := newEcho()
	in.execute = func(b backend.Batch) {
		r := b.Requests()[0]
		if err = r.Err; r.Parameters != nil {
			copied := *r.Parameters
			copied.Key = strings.Clone(copied.Key)
			seen = &copied
		}
	}
	s := serve(t, takesParameters{in})
	call := echoCall(1, 1, 2)
	call.Parameters = parameters
	s.execute(t, call)
	return seen, err
}

func named(name string, value any) faketriton.Parameter {
	return faketriton.Parameter{Name: name, Value: value}
}

func TestParameters(t *testing.T) {
	long := strings.Repeat("k", backend.MaxKey)
	for name, test := range map[string]struct {
		given []faketriton.Parameter
		want  backend.Parameters
	}{
		"try":            {[]faketriton.Parameter{named("stateful_resume", "try")}, backend.Parameters{Resume: backend.ResumeTry, Step: -1}},
		"require":        {[]faketriton.Parameter{named("stateful_resume", "require")}, backend.Parameters{Resume: backend.ResumeRequire, Step: -1}},
		"a bool":         {[]faketriton.Parameter{named("stateful_resume", true)}, backend.Parameters{Resume: backend.ResumeTry, Step: -1}},
		"no":             {[]faketriton.Parameter{named("stateful_resume", false)}, backend.Parameters{Step: -1}},
		"a bool as text": {[]faketriton.Parameter{named("stateful_resume", "true")}, backend.Parameters{Resume: backend.ResumeTry, Step: -1}},
		"step":           {[]faketriton.Parameter{named("stateful_step", int64(1)<<62)}, backend.Parameters{Step: 1 << 62}},
		"step 0":         {[]faketriton.Parameter{named("stateful_step", int64(0))}, backend.Parameters{}},
		"step as text":   {[]faketriton.Parameter{named("stateful_step", "17")}, backend.Parameters{Step: 17}},
		"key":            {[]faketriton.Parameter{named("stateful_key", "séance 7")}, backend.Parameters{Step: -1, Key: "séance 7"}},
		"longest key":    {[]faketriton.Parameter{named("stateful_key", long)}, backend.Parameters{Step: -1, Key: long}},
		"drop":           {[]faketriton.Parameter{named("stateful_drop", true)}, backend.Parameters{Step: -1}},
		"keep":           {[]faketriton.Parameter{named("stateful_drop", "False")}, backend.Parameters{Step: -1, Keep: true}},
		"headers, with others": {
			[]faketriton.Parameter{
				named("Stateful-Resume", "require"), named("stateful", 5.5), named("statefulness", true),
				named("stateful-step", "3"), named("other", []byte("x")), named("STATEFUL_SAVE", "1"),
			},
			backend.Parameters{Resume: backend.ResumeRequire, Step: 3, Save: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			seen, err := readParameters(t, test.given...)
			require.NoError(t, err)
			require.Equal(t, &test.want, seen)
		})
	}
	seen, err := readParameters(t, named("other", "stateful_step"))
	require.NoError(t, err)
	require.Nil(t, seen, "it has none of ours")
}

func TestBadParameters(t *testing.T) {
	for _, test := range []struct {
		name  string
		value any
		want  string
	}{
		{"stateful_resume", "maybe", `parameter "stateful_resume" is the string "maybe": want "try", "require" or a bool`},
		{"stateful_resume", "", `is the string ""`},
		{"stateful_resume", int64(1), `is the integer 1: want "try", "require" or a bool`},
		{"stateful_step", int64(-1), `parameter "stateful_step" is the integer -1: want an integer of at least 0`},
		{"stateful_step", "-1", `is the string "-1"`},
		{"stateful_step", "9223372036854775808", `is the string "9223372036854775808"`},
		{"stateful-step", 3.5, `parameter "stateful-step" is a floating-point number: want an integer`},
		{"stateful_step", true, `is the bool true`},
		{"stateful_save", "yes", `is the string "yes": want a bool`},
		{"stateful_save", int64(1), `is the integer 1: want a bool`},
		{"stateful_save", []byte("x"), `is of a type that the backend does not take: want a bool`},
		{"stateful_drop", 0.5, `want a bool`},
		{"stateful_key", int64(5), `is the integer 5: want a string of 1 to 256 bytes`},
		{"stateful_key", "", `want a string of 1 to 256 bytes`},
		{"stateful_key", strings.Repeat("k", 257), `"... (257 bytes): want a string of 1 to 256 bytes`},
		{"stateful_foo", "x", `parameter "stateful_foo" is unknown: want one of stateful_resume, stateful_step, stateful_save, stateful_key, stateful_drop`},
		{"stateful_", "x", `parameter "stateful_" is unknown`},
		{"stateful_steps", int64(1), `parameter "stateful_steps" is unknown`},
	} {
		_, err := readParameters(t, named(test.name, test.value))
		require.ErrorContains(t, err, test.want)
		require.Equal(t, status.InvalidArg, status.CodeOf(err))
	}
	_, err := readParameters(t, named("stateful_step", int64(1)), named("Stateful-Step", "1"))
	require.ErrorContains(t, err, `parameter "Stateful-Step": stateful_step is there twice: want it once`)
}

// TestParametersOfEachRequest: each gets its own, also if a batch is smaller than the one before.
func TestParametersOfEachRequest(t *testing.T) {
	var steps []int64
	in := newEcho()
	in.execute = func(b backend.Batch) {
		steps = nil
		for _, r := range b.Requests() {
			if r.Parameters == nil {
				steps = append(steps, -2)
			} else {
				steps = append(steps, r.Parameters.Step)
			}
		}
	}
	s := serve(t, takesParameters{in})
	call := func(id uint64, parameters ...faketriton.Parameter) faketriton.Call {
		c := echoCall(id, 1, 2)
		c.Parameters = parameters
		return c
	}
	step := func(n int64) faketriton.Parameter { return named("stateful_step", n) }
	for range 2 {
		s.execute(t, call(1, step(1)), call(2), call(3, named("x", "y"), step(3), named("stateful_save", true)), call(4, step(4)))
		require.Equal(t, []int64{1, -2, 3, 4}, steps)
		s.execute(t, call(1), call(2, step(2)))
		require.Equal(t, []int64{-2, 2}, steps)
	}
}

// TestParametersAreNotRead by an instance that does not use them.
func TestParametersAreNotRead(t *testing.T) {
	s := serve(t, newEcho())
	call := echoCall(1, 1, 2)
	call.Parameters = []faketriton.Parameter{named("stateful_step", "wrong")}
	rs := s.execute(t, call)
	answered(t, rs[0], y(1, 2), z(7))
	require.Zero(t, faketriton.CallsOf("TRITONBACKEND_RequestParameterCount"))
}

// TestTimeout: a request has the time-out of its client, where the instance uses parameters.
func TestTimeout(t *testing.T) {
	for timeout, want := range map[uint64]time.Duration{0: 0, 1500: 1500 * time.Microsecond, math.MaxUint64: math.MaxInt64 / 1000 * time.Microsecond} {
		seen := time.Duration(-1)
		in := newEcho()
		in.execute = func(b backend.Batch) { seen = b.Requests()[0].Timeout }
		call := echoCall(1, 1, 2)
		call.Timeout = timeout
		serve(t, takesParameters{in}).execute(t, call)
		require.Equal(t, want, seen)
		serve(t, in).execute(t, call)
		require.Zero(t, seen, "others do not ask for it")
	}
}
