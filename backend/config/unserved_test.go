package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/status"
)

// TestNumericIDs: a control that a text as correlation ID writes past the end of
// is worth a warning.
func TestNumericIDs(t *testing.T) {
	const words = `control "CORRID" has data_type `
	for dtype, want := range map[string]int{"TYPE_UINT64": 1, "TYPE_INT32": 1, "TYPE_STRING": 0} {
		c := Config{Sequence: &SequenceConfig{ControlInputs: []ControlConfig{{Name: "CORRID", Controls: []Control{{Kind: ControlCorrID, DataType: dtype}}}}}}
		warnings := c.Warnings()
		require.Len(t, warnings, want, dtype)
		for _, w := range warnings {
			require.Contains(t, w, words+dtype)
			require.Contains(t, w, "tritonserver before 25.01 may crash")
			require.Contains(t, w, "remove the control")
			require.Contains(t, w, "data_type: TYPE_STRING")
		}
	}
	require.Empty(t, new(Config).Warnings())
}

// TestUnserved: what this backend does not do is refused or warned of, in words
// that say what to write instead.
func TestUnserved(t *testing.T) {
	unserved := unserved{}
	unserved.BatchInput = []batchTensor{{Kind: "BATCH_ELEMENT_COUNT", TargetName: []string{"n"}}}
	unserved.BatchOutput = []batchTensor{{Kind: "BATCH_SCATTER_WITH_INPUT_SHAPE", TargetName: []string{"y", "z"}}}
	c := Config{unserved: unserved, Sequence: &SequenceConfig{Iterative: true}}
	err := c.Refusals()
	for _, want := range []string{
		"batch_input BATCH_ELEMENT_COUNT for n: ",
		"batch_output BATCH_SCATTER_WITH_INPUT_SHAPE for y, z: ",
		"iterative_sequence: ",
	} {
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, status.InvalidArg, status.CodeOf(err))
}

// TestCUDAGraphs: what has a parameter here is pointed there.
func TestCUDAGraphs(t *testing.T) {
	var c Config
	c.Optimization.CUDA.Graphs = true
	warnings := c.Warnings()
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "optimization.cuda.graphs has no effect")
	require.Contains(t, warnings[0], "parameter enable_cuda_graph")
}
