package backend

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNumericIDs: a control that a text as correlation ID writes past the end of
// is worth a warning.
func TestNumericIDs(t *testing.T) {
	const words = `control "CORRID" has data_type `
	for dtype, want := range map[string]int{"TYPE_UINT64": 1, "TYPE_INT32": 1, "TYPE_STRING": 0} {
		s := newServer(t, func(s *setup) {
			stringIDs(s)
			s.config.Sequence.ControlInputs[2].Controls[0].DataType = dtype
		})
		warnings := s.log.having("WARN " + words + dtype)
		require.Len(t, warnings, want, dtype)
		for _, w := range warnings {
			require.Contains(t, w, "tritonserver may crash")
			require.Contains(t, w, "leave the control out")
			require.Contains(t, w, "data_type: TYPE_STRING")
		}
	}
	require.Empty(t, newServer(t).log.having(words))
}
