package backend

import (
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/tensor"
)

// TestNoStatesFound: what to write, with all that there is to choose from, or for a model
// without states. Pairs are written out only where no others are
// possible, because wrong ones would load.
func TestNoStatesFound(t *testing.T) {
	const listed = `{"max_batch_size":8,"sequence_batching":{},"input":[{"name":"x","data_type":"TYPE_FP32","dims":[16]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[16]}]}`
	tests := []struct{ name, config, inputs, outputs, choice, pairs, right string }{
		{"one choice", `{"sequence_batching":{}}`, "x:FP32[B,T,8] q0:FP32[2,B,16] k0:FP32[2,B,17]", "y:FP32[B,T,16] b:FP32[2,B,17] a:FP32[2,B,16]", "inputs q0, outputs a;", "<<<q0, a>>> <<<k0, b>>>", ""},
		{"two of one shape", `{"sequence_batching":{}}`, "x:FP32[B,T,8] q0:FP32[2,B,16] k0:FP32[2,B,16]", "y:FP32[B,T,16] a:FP32[2,B,16] b:FP32[2,B,16]", "inputs q0, k0, outputs a, b:", "<<<q0, OUTPUT>>> <<<k0, OUTPUT>>>", "<<<q0, b>>> <<<k0, a>>>"},
		{"the output of clients comes last", listed, "x:FP32[B,16] h:FP32[B,16] c:FP32[B,16]", "y:FP32[B,16] h_next_value:FP32[B,16] c_next_value:FP32[B,16]", "inputs h, c, outputs h_next_value, c_next_value, y:", "<<<h, OUTPUT>>> <<<c, OUTPUT>>>", "<<<h, h_next_value>>> <<<c, c_next_value>>>"},
		{"what input names is no state", listed, "x:FP32[B,16] q0:FP32[B,16]", "a:FP32[B,16] y:FP32[B,16]", "inputs q0, outputs a, y:", "<<<q0, OUTPUT>>>", "<<<q0, a>>>"},
		{"the only input is not a state", `{"sequence_batching":{"control_input":[{"name":"START","control":[{"kind":"CONTROL_SEQUENCE_START","fp32_false_true":[0,1]}]}]}}`, "x:FP32[B,1] START:FP32[B,1]", "y:FP32[B,1]", "", "", ""},
		{"nothing is alike", `{"sequence_batching":{}}`, "x:FP32[B,8] q0:FP32[B,16]", "y:FP32[B,4] a:INT64[B,16]", "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sig := &onnx.Signature{Inputs: runnertest.Tensors(t, tt.inputs), Outputs: runnertest.Tensors(t, tt.outputs)}
			err := plansOrNot(t, tt.config, sig)
			require.ErrorContains(t, err, "could not find any state tensors")
			require.ErrorContains(t, err, "; for a model without states, list each of its inputs in input, or remove sequence_batching")
			if tt.pairs == "" {
				require.NotContains(t, err.Error(), "of equal type and shape")
				return
			}
			require.ErrorContains(t, err, tt.choice)
			require.ErrorContains(t, err, fmt.Sprintf("parameters { key: 'state_pairs' value { string_value: '%s' } }", tt.pairs))
			pasted := func(pairs string) error {
				return plansOrNot(t, strings.Replace(tt.config, "{", fmt.Sprintf(`{"parameters":{"state_pairs":{"string_value":%q}},`, pairs), 1), sig)
			}
			if tt.right == "" {
				require.NoError(t, pasted(tt.pairs), "what the message says is what works")
				return
			}
			require.Error(t, pasted(tt.pairs), "the choice is for people")
			require.NoError(t, pasted(tt.right))
		})
	}
}

// plansOrNot completes a configuration and plans the model.
func plansOrNot(t *testing.T, text string, sig *onnx.Signature) error {
	t.Helper()
	file := &runnertest.File{Sig: *sig}
	completed, err := Complete(ModelInfo{Config: []byte(text)}, Server{Log: slog.New(slog.DiscardHandler), DefaultBatch: config.ServerBatch, Open: func(onnx.SessionOptions) (onnx.Runner, error) { return file, nil }})
	if err != nil {
		return err
	}
	if completed == nil {
		completed = []byte(text)
	}
	cfg, err := config.Parse(completed)
	require.NoError(t, err)
	params, _, err := config.ParseParameters(cfg.Parameters)
	if err != nil {
		return err
	}
	_, err = planByEvidence(cfg, params, sig)
	return err
}

// TestNamesLeaveNoInput: the error has the pairs to choose from, and choosing works.
func TestNamesLeaveNoInput(t *testing.T) {
	sig := &onnx.Signature{Inputs: runnertest.Tensors(t, "audio_in:FP32[B,160] h_in:FP32[B,16]"), Outputs: runnertest.Tensors(t, "audio_out:FP32[B,160] h_out:FP32[B,16]")}
	err := plansOrNot(t, `{"sequence_batching":{}}`, sig)
	require.ErrorContains(t, err, `with parameters { key: 'state_pairs' value { string_value: '<<<audio_in, audio_out>>> <<<h_in, h_out>>>' } }`)
	require.NoError(t, plansOrNot(t, `{"sequence_batching":{},"parameters":{"state_pairs":{"string_value":"<<<h_in, h_out>>>"}}}`, sig))
	require.NoError(t, plansOrNot(t, `{"sequence_batching":{},"max_batch_size":4,"input":[{"name":"audio_in","data_type":"TYPE_FP32","dims":[160]}]}`, sig))

	err = plansOrNot(t, `{"sequence_batching":{},"parameters":{"state_pairs":{"string_value":"<<<h_in, h_out>>> <<<audio_in, audio_out>>>"}}}`, sig)
	require.ErrorContains(t, err, "leaves no input for requests")
	require.NotContains(t, err.Error(), "guessed", "these pairs were said")
}

// TestGuessedPairThatDoesNotFit: what is refused of a pair says that it was guessed.
func TestGuessedPairThatDoesNotFit(t *testing.T) {
	sig := &onnx.Signature{Inputs: runnertest.Tensors(t, "x:FP32[B,8] s:FP32[B,T] h:FP32[B,16]"), Outputs: runnertest.Tensors(t, "y:FP32[B,8] s_out:FP32[T,B] h_out:FP32[B,16]")}
	err := plansOrNot(t, `{"sequence_batching":{}}`, sig)
	require.ErrorContains(t, err, `declare the others with parameters { key: 'state_pairs' value { string_value: '<<<h, h_out>>>' } }`)
	require.NotContains(t, plansOrNot(t, `{"sequence_batching":{},"parameters":{"state_pairs":{"string_value":"<<<h, h_out>>> <<<s, s_out>>>"}}}`, sig).Error(), "guessed")

	sig.Inputs, sig.Outputs = sig.Inputs[:2], sig.Outputs[:2]
	require.ErrorContains(t, plansOrNot(t, `{"sequence_batching":{}}`, sig), `list "s" in input`)
}

// TestUnfedInputNamedAsAState: why it is no state is in the message.
func TestUnfedInputNamedAsAState(t *testing.T) {
	sig := &onnx.Signature{Inputs: runnertest.Tensors(t, "x:FP32[B,8] h:FP32[B,16] g:FP32[B,2]"), Outputs: runnertest.Tensors(t, "y:FP32[B,8] h_out:FP32[B,17] g_out:FP32[B,2]")}
	err := plansOrNot(t, `{"max_batch_size":8,"sequence_batching":{},"input":[{"name":"x","data_type":"TYPE_FP32","dims":[8]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[8]}]}`, sig)
	require.ErrorContains(t, err, `output "h_out" are named like a state`)
}

var dimsLine = regexp.MustCompile(`: write dims: \[ ([-0-9, ]*)\]( reshape: \{ shape: \[ \] \})?`)

// TestDimsToWrite: the line that an error about dims names is one with which the
// model loads.
func TestDimsToWrite(t *testing.T) {
	tests := []struct {
		name, x string
		batch   int
		given   tensor.Shape
		want    string
	}{
		{"an extent", "x:FP32[B,4,5]", 8, tensor.Shape{4, 6}, "[ 4, 5 ]"},
		{"an extent, the batch inside", "x:FP32[4,B,5]", 8, tensor.Shape{4, 6}, "[ 4, 5 ]"},
		{"an extent, all axes named", "x:FP32[4,B,5]", 8, tensor.Shape{4, -1, 6}, "[ 4, -1, 5 ]"},
		{"too many axes", "x:FP32[B,T,5]", 8, tensor.Shape{-1, 4, 5, 1}, "[ -1, 5 ]"},
		{"no axes", "x:FP32[B,5]", 8, tensor.Shape{}, "[ 5 ]"},
		{"a batch that is named", "x:FP32[B,5]", 8, tensor.Shape{3, 5}, "[ 5 ]"},
		{"no other axis", "x:FP32[B]", 8, tensor.Shape{5, 2}, "[ 1 ] reshape: { shape: [ ] }"},
		{"no batch", "x:FP32[B,5]", 0, tensor.Shape{5}, "[ -1, 5 ]"},
		{"a batch of 1 that the exporter fixed", "x:FP32[1,5]", 8, tensor.Shape{6}, "[ 5 ]"},
		{"the same with all axes named", "x:FP32[1,5]", 8, tensor.Shape{1, 6}, "[ 1, 5 ]"},
		{"two axes that could be the batch", "x:FP32[?,?,5]", 8, tensor.Shape{6}, "[ -1, 5 ]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sig := &onnx.Signature{Inputs: runnertest.Tensors(t, tt.x+" h:FP32[B,2]"), Outputs: runnertest.Tensors(t, "y:FP32[B,8] h_out:FP32[B,2]")}
			wireWith := func(x config.TensorConfig) error {
				c := &config.Config{MaxBatchSize: tt.batch, Sequence: &config.SequenceConfig{}, Inputs: []config.TensorConfig{x}, Outputs: []config.TensorConfig{{Name: "y", DataType: "TYPE_FP32", Dims: tensor.Shape{8}}}}
				if tt.batch == 0 {
					c.Outputs[0].Dims = tensor.Shape{-1, 8}
				}
				_, err := planByEvidence(c, &config.Parameters{}, sig)
				return err
			}
			err := wireWith(config.TensorConfig{Name: "x", DataType: "TYPE_FP32", Dims: tt.given})
			require.ErrorContains(t, err, `input "x": dims are `)
			line := dimsLine.FindStringSubmatch(err.Error())
			require.NotNil(t, line, "%v", err)
			require.Equal(t, tt.want, strings.TrimPrefix(line[0], ": write dims: "))
			fixed := config.TensorConfig{Name: "x", DataType: "TYPE_FP32", Dims: shapeOf(t, line[1])}
			if line[2] != "" {
				fixed.Reshape = &config.Reshape{Shape: tensor.Shape{}}
			}
			require.NoError(t, wireWith(fixed), "what the message says is what works")
		})
	}
}

// TestStateDimsToWrite is the same for sequence_batching.state.
func TestStateDimsToWrite(t *testing.T) {
	for _, tt := range []struct {
		h     string
		batch int
		given tensor.Shape
		want  string
	}{
		{"FP32[2,B,16]", 8, tensor.Shape{2, 17}, "[ 2, 16 ]"},
		{"FP32[2,B,16]", 8, tensor.Shape{2, 1, 16}, "[ 2, 16 ]"},
		{"FP32[B,L]", 8, tensor.Shape{}, "[ -1 ]"},
		{"FP32[B]", 8, tensor.Shape{3}, "[ ]"},
		{"FP32[2,1,16]", 0, tensor.Shape{2, 16}, "[ 2, 1, 16 ]"},
	} {
		name, extents, _ := strings.Cut(tt.h, "[")
		sig := &onnx.Signature{Inputs: runnertest.Tensors(t, "x:FP32[B,8] h:"+name+"["+extents), Outputs: runnertest.Tensors(t, "y:FP32[B,8] g:"+name+"["+extents)}
		wireWith := func(dims tensor.Shape) error {
			io := tensor.Shape{8}
			if tt.batch == 0 {
				io = tensor.Shape{-1, 8}
			}
			c := &config.Config{MaxBatchSize: tt.batch, Inputs: []config.TensorConfig{{Name: "x", DataType: "TYPE_FP32", Dims: io}}, Outputs: []config.TensorConfig{{Name: "y", DataType: "TYPE_FP32", Dims: io}}}
			c.Sequence = &config.SequenceConfig{States: []config.StateConfig{{InputName: "h", OutputName: "g", DataType: "TYPE_FP32", Dims: dims}}}
			_, err := planByEvidence(c, &config.Parameters{}, sig)
			return err
		}
		err := wireWith(tt.given)
		line := dimsLine.FindStringSubmatch(fmt.Sprint(err))
		require.NotNil(t, line, "%v", err)
		require.Equal(t, tt.want, strings.TrimPrefix(line[0], ": write dims: "))
		require.NoError(t, wireWith(shapeOf(t, line[1])), "what the message says is what works")
	}
}

// shapeOf reads "4, -1, 5".
func shapeOf(t *testing.T, text string) tensor.Shape {
	t.Helper()
	dims := tensor.Shape{}
	for field := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		n, err := strconv.ParseInt(field, 10, 64)
		require.NoError(t, err)
		dims = append(dims, n)
	}
	return dims
}
