package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/docstable"
	"tritonstateful/internal/onnx"
)

// TestDocumentedParameters: the page has every parameter, no other one, and the
// defaults that they have.
func TestDocumentedParameters(t *testing.T) {
	plain, _, err := ParseParameters(nil)
	require.NoError(t, err)
	var documented []string
	for _, cells := range docstable.Rows(t, "parameters.md", "| Parameter |") {
		name, fallback := cells[0], cells[2]
		documented = append(documented, name)
		if fallback == "none" {
			require.NotContains(t, plain.Settings, name)
			continue
		}
		require.Equal(t, fallback, plain.Settings[name])
		given, warnings, err := ParseParameters(map[string]Value{name: {fallback}})
		require.NoError(t, err, name)
		require.Empty(t, warnings, name)
		given.ratioGiven, given.LogGiven = plain.ratioGiven, plain.LogGiven
		require.Equal(t, plain, given, "the default of %s", name)
	}
	slices.Sort(documented)
	require.Equal(t, ParameterNames(), documented)
}

// TestDocumentedSettings: the page has every setting that is passed on, and its type.
func TestDocumentedSettings(t *testing.T) {
	want := map[string]string{}
	for _, keys := range []map[string]onnx.Kind{onnx.SessionKeys, onnx.RunKeys} {
		for key, kind := range keys {
			want[key] = [...]string{onnx.Text: "string", onnx.Bool: "bool", onnx.Integer: "integer", onnx.Unsigned: "integer, 0 or more", onnx.Number: "number"}[kind]
		}
	}
	documented := map[string]string{}
	for _, cells := range docstable.Rows(t, "parameters.md", "| Setting | Type |") {
		documented[cells[0]] = cells[1]
	}
	require.Equal(t, want, documented)
}

// TestDocumentedWords: the words that the page allows are those that are allowed.
func TestDocumentedWords(t *testing.T) {
	for _, cells := range docstable.Rows(t, "parameters.md", "| Parameter |") {
		name, kind, words := cells[0], cells[1], cells[3]
		p, _, err := ParseParameters(map[string]Value{name: {"neither"}})
		if name == "ort_ep" { // only an instance on a GPU takes it to heart
			_, err = p.Provider("gpu")
		}
		switch kind {
		case "enum":
			require.ErrorContains(t, err, "want one of "+words, name)
		case "bool":
			require.ErrorContains(t, err, "want one of 0, 1, false, true", name)
		case "integer", "number":
			require.ErrorContains(t, err, "number", name)
		case "assignments":
			require.ErrorContains(t, err, "NAME = VALUE", name)
		case "string", "path":
			continue
		default:
			t.Errorf("parameter %s is of the type %q, which is none", name, kind)
		}
	}
}

// TestDocumentedPairs: what the page says is refused is, in these words.
func TestDocumentedPairs(t *testing.T) {
	refused := 0
	for _, cells := range docstable.Rows(t, "parameters.md", "| Value |") {
		_, message, found := strings.Cut(cells[1], "error: ")
		if !found {
			continue
		}
		refused++
		_, err := parsePairs(cells[0])
		require.ErrorContains(t, err, strings.TrimPrefix(message, "... "))
	}
	require.Equal(t, 3, refused)
}
