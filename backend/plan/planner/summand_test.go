package planner

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSummand(t *testing.T) {
	for text, want := range map[string]struct {
		function string
		plus     int64
	}{
		"steps":                        {"steps", 0},
		"16 + steps":                   {"steps", 16},
		"16+steps":                     {"steps", 16},
		"-16 + steps":                  {"steps", -16},
		"+ 1 + steps":                  {"steps", 1},
		"steps - 4":                    {"steps", -4},
		"steps+ 4":                     {"steps", 4},
		"length_before(a-1)":           {"length_before(a-1)", 0},
		"length_before(a + 1) + 2":     {"length_before(a + 1)", 2},
		"9223372036854775807 + steps":  {"steps", math.MaxInt64},
		"steps - 9223372036854775808":  {"steps", math.MinInt64},
		"16 - steps":                   {"16 - steps", 0},
		"1 + steps + 2":                {"steps + 2", 1},
		"steps + - 2":                  {"steps + - 2", 0},
		"3":                            {"3", 0},
		"":                             {"", 0},
		"16":                           {"16", 0},
		"length_before(x:1) + 0000012": {"length_before(x:1)", 12},
	} {
		function, plus, err := summand(text)
		require.NoError(t, err, text)
		require.Equal(t, want.function, function, text)
		require.Equal(t, want.plus, plus, text)
	}
	_, _, err := summand("9223372036854775808 + steps")
	require.ErrorContains(t, err, `"9223372036854775808" is not a valid summand`)
}
