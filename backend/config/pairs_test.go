package config

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/status"
)

// TestParsePairs has every valid form of NVIDIA's parser, and what it means there.
func TestParsePairs(t *testing.T) {
	ab, abcd := []Pair{{"A", "B"}}, []Pair{{"A", "B"}, {"C", "D"}}
	tests := []struct {
		name, text string
		want       []Pair
	}{
		{"one", "<<<A, B>>>", ab},
		{"no blank", "<<<A,B>>>", ab},
		{"many blanks", "<<<  A ,  B  >>>", ab},
		{"parted by a blank", "<<<A, B>>> <<<C, D>>>", abcd},
		{"parted by a comma", "<<<A, B>>>,<<<C, D>>>", abcd},
		{"parted by a comma and a blank", "<<<A, B>>>, <<<C, D>>>", abcd},
		{"not parted", "<<<A, B>>><<<C, D>>>", abcd},
		{"parted by anything", "<<<A, B>>>;;;x<<<C, D>>>", abcd},
		{"on two lines", "<<<A, B>>>\n<<<C, D>>>", abcd},
		{"on two lines of another system", "<<<A, B>>>\r\n<<<C, D>>>\r\n", abcd},
		{"text around", "states: <<<A, B>>> and <<<C, D>>>.", abcd},
		{"a comma in the second name", "<<<A, B, C>>>", []Pair{{"A", "B, C"}}},
		{"a blank in a name", "<<<the state, its output>>>", []Pair{{"the state", "its output"}}},
		{"names beyond ASCII", "<<<größe/状態:0, Ω>>>", []Pair{{"größe/状態:0", "Ω"}}},
		{"the same name on both sides", "<<<A, A>>>", []Pair{{"A", "A"}}},
		{"wildcards are the business of the plan", "<<<past_*, present_*>>>", []Pair{{"past_*", "present_*"}}},
		{"nothing", "", nil},
		{"no pair", "A, B", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parsePairs(tt.text)
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

// TestParsePairsRejects has the forms that NVIDIA's parser takes for something
// else than was meant, or reads beyond its memory for.
func TestParsePairsRejects(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"not closed", "<<<A, B", `at character 1, "<<<A, B" has no closing >>>`},
		{"second one not closed", "<<<A, B>>> <<<C, D", `at character 12, "<<<C, D" has no closing >>>`},
		{"closed by two", "<<<A, B>> <<<C, D>>>", `at character 1, "<<<A, B>> <<<C, D>>>" has a misplaced bracket`},
		{"no comma", "<<<A B>>>", `at character 1, "<<<A B>>>" has no comma between`},
		{"no comma, then a pair", "<<<A B>>> <<<C, D>>>", `at character 1, "<<<A B>>> <<<C, D>>>" has no comma`},
		{"empty", "<<<>>>", "has no comma"},
		{"empty names", "<<<,>>>", "has an empty name"},
		{"empty second name", "<<<A,>>>", "has an empty name"},
		{"blank first name", "<<< , B>>>", "has an empty name"},
		{"tab around a name", "<<<A,\tB>>>", "is broken by a line end"},
		{"over two lines", "<<<A,\nB>>>", "is broken by a line end"},
		{"four brackets", "<<<<A, B>>>>", "at character 1"},
		{"four closing brackets", "<<<A, B>>>> <<<C, D>>>", `at character 11, "> <<<C, D>>>" is a bracket outside`},
		{"two brackets", "<<A, B>>", `at character 1, "<<A, B>>" is a bracket outside`},
		{"one bracket", "<A, B>", "is a bracket outside"},
		{"bracket at the end", "<<<A, B>>> >", `at character 12, ">" is a bracket outside`},
		{"input twice", "<<<A, B>>> <<<A, C>>>", `at character 12, "<<<A, C>>>" names a tensor`},
		{"output twice", "<<<A, B>>> <<<C, B>>>", "the pair <<<A, B>>> names already"},
		{"long text is cut", "<<<" + strings.Repeat("A", 100), `"<<<` + strings.Repeat("A", 37) + `…" has no closing`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parsePairs(tt.text)
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, "parameter state_pairs: at character ")
			require.ErrorContains(t, err, "want <<<input, output>>> for each state")
			require.Equal(t, status.InvalidArg, status.CodeOf(err))
			require.True(t, utf8.ValidString(err.Error()))
		})
	}
}

func TestPairsFromDescription(t *testing.T) {
	ab := []Pair{{"A", "B"}}
	tests := []struct {
		name, doc string
		want      []Pair
	}{
		{"nothing", "a model of something", nil},
		{"states", "InputState, OutputState: <<<A, B>>>", ab},
		{"past values", "PastValueInput, PastValueOutput: <<<A, B>>>", ab},
		{"several lines", "a model\nInputState OutputState <<<A, B>>> <<<C, D>>>\nof something", []Pair{{"A", "B"}, {"C", "D"}}},
		{"both kinds", "PastValueInput PastValueOutput <<<C, D>>>\nInputState OutputState <<<A, B>>>", []Pair{{"A", "B"}, {"C", "D"}}},
		{"outputs first", "OutputState, InputState: <<<B, A>>>", ab},
		{"remarks after a colon", "InputState OutputState <<<A:1x2, B :float>>>", ab},
		{"a line end of another system", "InputState OutputState <<<A, B>>>\r\n", ab},
		{"pairs before the word do not count", "<<<X, Y>>> InputState OutputState <<<A, B>>>", ab},
		{"one word is not enough", "InputState <<<A, B>>>", nil},
		{"nor are words of two kinds", "InputState PastValueOutput <<<A, B>>>", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := PairsFromDescription(tt.doc)
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
	_, err := PairsFromDescription("InputState OutputState <<<A, B")
	require.ErrorContains(t, err, "in the model's doc string: ")
	require.ErrorContains(t, err, "has no closing >>>")
}
