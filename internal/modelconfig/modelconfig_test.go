package modelconfig

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"tritonstateful/backend/config"
)

const written = `
name: "lstm"   # a comment
backend: "stateful"
max_batch_size: 8
input [{ name: "x" data_type: TYPE_FP32 dims: [ -1, 8 ] }]
output { name: "y" data_type: TYPE_FP32 dims: 8 reshape { shape: [ ] } }
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  oldest { max_candidate_sequences: 256 preferred_batch_size: [ 4, 8 ] }
  control_input [{ name: "START" control [{ kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] }] }]
}
parameters { key: "state_pairs" value { string_value: "<<<h0, hn>>>" } }
parameters { key: "batch_axes" value { string_value: 'say "x" = 0' } }
`

// TestToBackend: what a file says is what backend/config reads.
func TestToBackend(t *testing.T) {
	m, err := Parse([]byte(written))
	require.NoError(t, err)
	c, err := config.Parse(JSON(m))
	require.NoError(t, err)
	require.Equal(t, "lstm", c.Name)
	require.Equal(t, 8, c.MaxBatchSize)
	require.Equal(t, "[-1,8]", c.Inputs[0].Dims.String())
	require.Empty(t, c.Outputs[0].LaneDims())
	require.NotNil(t, c.Outputs[0].Reshape)
	require.Equal(t, uint64(60000000), c.Sequence.MaxIdleMicroseconds)
	require.Equal(t, []int{4, 8}, c.Sequence.Oldest.PreferredBatchSizes)
	require.Equal(t, config.ControlStart, c.Sequence.ControlInputs[0].Controls[0].Kind)
	require.Equal(t, "<<<h0, hn>>>", c.Parameters["state_pairs"].String)
}

// TestRoundTrip: Format, Parse, JSON and FromJSON lose nothing.
func TestRoundTrip(t *testing.T) {
	m, err := Parse([]byte(written))
	require.NoError(t, err)
	again, err := Parse([]byte(Format(m, nil)))
	require.NoError(t, err)
	require.True(t, proto.Equal(m, again), Format(m, nil))
	fromJSON, err := FromJSON(JSON(m))
	require.NoError(t, err)
	require.True(t, proto.Equal(m, fromJSON))
}

// TestFormat: stable text, with comments where they belong.
func TestFormat(t *testing.T) {
	m, err := Parse([]byte(written))
	require.NoError(t, err)
	require.Equal(t, `name: "lstm"
backend: "stateful"
max_batch_size: 8
# in
input [
  # what comes
  # from clients
  { name: "x" data_type: TYPE_FP32 dims: [ -1, 8 ] }
]
output [
  { name: "y" data_type: TYPE_FP32 dims: [ 8 ] reshape { } }
]
sequence_batching {
  # which
  oldest { max_candidate_sequences: 256 preferred_batch_size: [ 4, 8 ] }
  max_sequence_idle_microseconds: 60000000
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] }
  ]
}
parameters { key: "batch_axes" value { string_value: 'say "x" = 0' } }
# pairs
parameters { key: "state_pairs" value { string_value: "<<<h0, hn>>>" } }
`, Format(m, Comments{
		"input": "in", "input[0]": "what comes\nfrom clients", "sequence_batching.oldest": "which", `parameters["state_pairs"]`: "pairs",
	}))
}

// TestFaults: errors have the line and the name.
func TestFaults(t *testing.T) {
	_, err := Parse([]byte("name: \"x\"\nmax_batchsize: 8\n"))
	require.EqualError(t, err, `reading the model configuration: (line 2:1): unknown field: max_batchsize`)
	_, err = Parse([]byte("input [{ data_type: TYPE_FP33 }]"))
	require.ErrorContains(t, err, "TYPE_FP33")
	_, err = FromJSON([]byte(`{"inputs": []}`))
	require.ErrorContains(t, err, "inputs")
}
