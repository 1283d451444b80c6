package backend

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"tritonstateful/internal/status"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func FuzzParsePairs(f *testing.F) {
	for _, seed := range []string{"", "<<<A, B>>>", "<<<A, B>>>,<<<C, D>>>", "<<<A, B, C>>>", "<<<<A, B>>>>", "<<<A,\nB>>>", "<<<A, B>> <<<C, D>>>", "\xff<<<\xfe,\xfd>>>", "x<"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pairs, err := ParsePairs(text)
		if err != nil {
			require.Empty(t, pairs)
			require.Equal(t, status.InvalidArg, status.CodeOf(err))
			return
		}
		again := ""
		for _, p := range pairs {
			require.NotEmpty(t, p.Input)
			require.NotEmpty(t, p.Output)
			require.NotContains(t, p.Input, ",")
			again += "<<<" + p.Input + ", " + p.Output + ">>> "
		}
		got, err := ParsePairs(again)
		require.NoError(t, err)
		require.Equal(t, pairs, got, "written and read again")
	})
}

func FuzzParseParameters(f *testing.F) {
	for _, seed := range []string{"512", "-1", "0.9", "nan", "1", "true", "VERBOSE", "trt", "<<<A, B>>>", "../x", "a = 1; b", "99999999999999999999", "\x00", "reject"} {
		for _, name := range slices.Sorted(maps.Keys(parameterTable())) {
			f.Add(name, seed)
		}
	}
	f.Add("initial_bufer_size", "1")
	f.Fuzz(func(t *testing.T, name, value string) {
		p, warnings, err := ParseParameters(map[string]Value{name: {value}})
		require.NotNil(t, p)
		if err != nil {
			require.Equal(t, status.InvalidArg, status.CodeOf(err))
			if utf8.ValidString(name) {
				require.ErrorContains(t, err, name)
			}
			return
		}
		_, known := parameterTable()[name]
		require.Equal(t, !known, len(warnings) > 0 && strings.Contains(warnings[len(warnings)-1], "is unknown"))
	})
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte("{}"))
	f.Add([]byte("null"))
	f.Add(newSetup().json())
	f.Add(newSetup(stringIDs).json())
	f.Add([]byte(`{"sequence_batching":{"oldest":{"max_candidate_sequences":-1},"max_sequence_idle_microseconds":18446744073709551615}}`))
	f.Add([]byte(`{"max_batch_size":"8"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig(text)
		if err != nil {
			require.Equal(t, status.InvalidArg, status.CodeOf(err))
			return
		}
		require.GreaterOrEqual(t, c.Idle(), 0*c.Idle())
		require.GreaterOrEqual(t, c.candidates(), 0)
		_ = c.StringIDs()
		_, err = json.Marshal(c)
		require.NoError(t, err)
		if len(c.Inputs)+len(c.Outputs) > 20 {
			return
		}
		sig := newAccumulator(nil, accumulate()).sig
		if params, _, err := ParseParameters(c.Parameters); err == nil {
			_, _ = wire(c, params, &sig, func(string) ([]byte, error) { return nil, errInjected }) // must not panic
		}
	})
}
