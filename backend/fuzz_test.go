package backend

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/status"
)

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte("{}"))
	f.Add([]byte("null"))
	f.Add(newSetup().json())
	f.Add(newSetup(stringIDs).json())
	f.Add([]byte(`{"sequence_batching":{"oldest":{"max_candidate_sequences":-1},"max_sequence_idle_microseconds":18446744073709551615}}`))
	f.Add([]byte(`{"max_batch_size":"8"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := config.Parse(text)
		if err != nil {
			require.Equal(t, status.InvalidArg, status.CodeOf(err))
			return
		}
		require.GreaterOrEqual(t, c.Idle(), 0*c.Idle())
		require.GreaterOrEqual(t, c.Candidates(), 0)
		_ = c.StringIDs()
		_, err = json.Marshal(c)
		require.NoError(t, err)
		if len(c.Inputs)+len(c.Outputs) > 20 {
			return
		}
		sig := newAccumulator(nil, accumulate()).sig
		if params, _, err := config.ParseParameters(c.Parameters); err == nil {
			_, _ = planByEvidence(c, params, &sig) // must not panic
		}
	})
}
