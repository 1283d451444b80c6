package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommonPattern(t *testing.T) {
	for want, names := range map[string][]string{
		"past":     {"past"},
		"past_*":   {"past_k", "past_v"},
		"past*":    {"past", "past_v"},
		"k*_cache": {"k0_cache", "k11_cache"},
		"*":        {"a", "b"},
		"a*":       {"aa", "a"},
	} {
		require.Equal(t, want, CommonPattern(names), "%v", names)
		for _, name := range names {
			_, ok := MatchPattern(want, name)
			require.True(t, ok)
		}
	}
}
