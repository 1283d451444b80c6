package config

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConfigLimits(t *testing.T) {
	c := &Config{}
	require.Zero(t, c.Idle())
	require.Zero(t, c.Candidates())
	c.Sequence = &SequenceConfig{MaxIdleMicroseconds: math.MaxUint64}
	require.Less(t, time.Duration(0), 2*c.Idle(), "no overflow")
	require.Equal(t, 1, c.Candidates())
	c.MaxBatchSize = 7
	require.Equal(t, 7, c.Candidates(), "an oldest strategy without the field has as many as a batch")
	c.Sequence.Oldest = &OldestConfig{MaxCandidateSequences: 9}
	require.Equal(t, 9, c.Candidates())
}

func TestStringIDs(t *testing.T) {
	require.False(t, (&Config{Sequence: &SequenceConfig{}}).StringIDs())
	for dataType, want := range map[string]bool{"TYPE_STRING": true, "TYPE_UINT64": false, "": false} {
		c := &Config{Sequence: &SequenceConfig{ControlInputs: []ControlConfig{
			{Name: "START", Controls: []Control{{Kind: ControlStart}}},
			{Name: "CORRID", Controls: []Control{{Kind: ControlCorrID, DataType: dataType}}},
		}}}
		require.Equal(t, want, c.StringIDs())
	}
}
