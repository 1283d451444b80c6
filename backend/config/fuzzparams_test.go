package config

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
)

func FuzzParsePairs(f *testing.F) {
	for _, seed := range []string{"", "<<<A, B>>>", "<<<A, B>>>,<<<C, D>>>", "<<<A, B, C>>>", "<<<<A, B>>>>", "<<<A,\nB>>>", "<<<A, B>> <<<C, D>>>", "\xff<<<\xfe,\xfd>>>", "x<"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pairs, err := parsePairs(text)
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
		got, err := parsePairs(again)
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
	f.Add("session.disable_prepacking", "1")
	f.Add("session.disable_prepaking", "1")
	f.Add("memory.enable_memory_arena_shrinkage", "cpu:0;gpu:1")
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
		if _, passed := onnx.SessionKeys[name]; passed || name == onnx.ArenaShrinkage {
			known = true
		}
		require.Equal(t, !known, len(warnings) > 0 && strings.Contains(warnings[len(warnings)-1], "is unknown"))
	})
}

// FuzzAssignments: what is read has names and values, patterns match what they
// are filled to, and exact names go before patterns.
func FuzzAssignments(f *testing.F) {
	f.Add("h = 1; c = 0", "h")
	f.Add("past_key_values.{i}.key = 0[1,2]\nrest* = none", "past_key_values.7.key")
	f.Add("{layer}.{kind} = 1; {}{a b}{{x}} = 2", "0.key")
	f.Add("* = 1; **a*=2;=;x=", "aaa")
	f.Add(strings.Repeat("*a", 20)+"=1", strings.Repeat("a", 60))
	f.Fuzz(func(t *testing.T, text, name string) {
		all, err := parseAssignments(text)
		if err != nil {
			return
		}
		value, found := Lookup(all, name)
		matches := 0
		for _, a := range all {
			require.NotEmpty(t, a.Name)
			require.NotEmpty(t, a.Value)
			parts, match := MatchPattern(a.Name, name)
			if !match {
				continue
			}
			matches++
			require.Equal(t, name, FillPattern(a.Name, parts))
			if a.Name == name {
				require.Equal(t, value, firstOf(all, name))
			}
		}
		require.Equal(t, matches > 0, found)
	})
}

func firstOf(all []Assignment, name string) string {
	for _, a := range all {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}
