package planner

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/docstable"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
)

// pairedByName are the pairs that the names of a model's tensors give, as
// state_pairs would have them, and what is wrong with the names.
func pairedByName(t *testing.T, inputs, outputs string) (pairs string, faults []error) {
	t.Helper()
	pl := newPlanner(&config.Config{MaxBatchSize: 8, Sequence: &config.SequenceConfig{}}, &config.Parameters{}, &onnx.Signature{Inputs: runnertest.Tensors(t, inputs), Outputs: runnertest.Tensors(t, outputs)}, nil, nil)
	return pairsText(pl.namedAlike()), pl.faults
}

// TestPairsByName has signatures of real exporters, and pairs that are none although
// their names would say so.
func TestPairsByName(t *testing.T) {
	tests := []struct{ name, inputs, outputs, want string }{
		{"torch LSTM", "x:FP32[B,T,8] h0:FP32[2,B,16] c0:FP32[2,B,16]", "y:FP32[B,T,16] hn:FP32[2,B,16] cn:FP32[2,B,16]", "<<<h0, hn>>> <<<c0, cn>>>"},
		{"torch LSTM, by its documentation", "input:FP32[B,T,8] h_0:FP32[2,B,16] c_0:FP32[2,B,16]", "output:FP32[B,T,16] h_n:FP32[2,B,16] c_n:FP32[2,B,16]", "<<<h_0, h_n>>> <<<c_0, c_n>>>"},
		{"WeNet", "chunk_xs:FP32[B,T,80] chunk_lens:INT32[B] offset:INT64[B,1] att_cache:FP32[B,12,4,C,128] cnn_cache:FP32[B,12,256,7] cache_mask:FP32[B,1,C]",
			"log_probs:FP32[B,T,10] log_probs_idx:INT64[B,T,10] chunk_out:FP32[B,T,256] chunk_out_lens:INT32[B] r_offset:INT64[B,1] r_att_cache:FP32[B,12,4,C,128] r_cnn_cache:FP32[B,12,256,7] r_cache_mask:FP32[B,1,C]",
			"<<<offset, r_offset>>> <<<att_cache, r_att_cache>>> <<<cnn_cache, r_cnn_cache>>> <<<cache_mask, r_cache_mask>>>"},
		{"NeMo", "audio_signal:FP32[B,80,T] length:INT64[B] cache_last_channel:FP32[B,17,70,512] cache_last_time:FP32[B,17,512,8] cache_last_channel_len:INT64[B]",
			"outputs:FP32[B,512,U] encoded_lengths:INT64[B] cache_last_channel_next:FP32[B,17,70,512] cache_last_time_next:FP32[B,17,512,8] cache_last_channel_next_len:INT64[B]",
			"<<<cache_last_channel, cache_last_channel_next>>> <<<cache_last_time, cache_last_time_next>>> <<<cache_last_channel_len, cache_last_channel_next_len>>>"},
		{"TEN VAD", "input_1:FP32[?,3,41] input_2:FP32[?,64] input_3:FP32[?,64]", "output_1:FP32[?,?,1] output_2:FP32[?,64] output_3:FP32[?,64]", "<<<input_2, output_2>>> <<<input_3, output_3>>>"},
		{"FunASR lfr_cmvn_pe", "chunk_xs:FP32[B,61,80] cache:FP32[B,10,560] offset:INT32[B,1]", "chunk_xs_out:FP32[B,T,560] r_cache:FP32[B,10,560] r_offset:INT32[B,1]", "<<<cache, r_cache>>> <<<offset, r_offset>>>"},
		{"other extents", "x:FP32[B,8] h:FP32[B,16]", "h_out:FP32[B,17]", ""},
		{"other rank", "x:FP32[B,8] h:FP32[B,16]", "h_out:FP32[B,1,16]", ""},
		{"other type", "x:FP32[B,8] h:FP32[B,16]", "h_out:FP16[B,16]", ""},
		{"strings", "x:FP32[B,8] h:STRING[B,16]", "h_out:STRING[B,16]", ""},
		{"an extent that only one side knows", "x:FP32[B,8] h:FP32[B,16] g:FP32[B,K]", "h_out:FP32[B,K] g_out:FP32[B,16]", "<<<h, h_out>>> <<<g, g_out>>>"},
		{"of two names the one that fits", "x:FP32[B,8] h:FP32[B,16]", "h_out:FP32[B,17] new_h:FP32[B,16]", "<<<h, new_h>>>"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, faults := pairedByName(t, tt.inputs, tt.outputs)
			require.Empty(t, faults)
			require.Equal(t, tt.want, got)
		})
	}
}

// TestPairsOfUnknownRank: torch's dynamo exporter may declare a rank for an output that
// contradicts the graph; ONNX Runtime then forgets it. Such an output can be a state's.
func TestPairsOfUnknownRank(t *testing.T) {
	sig := &onnx.Signature{Inputs: runnertest.Tensors(t, "x:FP32[B,8] h0:FP32[2,B,16]"), Outputs: runnertest.Tensors(t, "y:FP32[B,8] hn:FP32[]")}
	sig.Outputs[1].Dims, sig.Outputs[1].Symbols = nil, nil
	pl := newPlanner(&config.Config{MaxBatchSize: 8, Sequence: &config.SequenceConfig{}}, &config.Parameters{}, sig, nil, nil)
	require.Equal(t, "<<<h0, hn>>>", pairsText(pl.namedAlike()))

	sig.Outputs[1] = runnertest.Tensors(t, "hn:FP32[]")[0] // no axes, which is known
	require.Empty(t, pl.namedAlike())
}

// TestNamesThatDoNotTell: all pairs that are sure and what else there is to choose
// from, ready to be pasted.
func TestNamesThatDoNotTell(t *testing.T) {
	const paste = `parameters { key: 'state_pairs' value { string_value: '`
	_, faults := pairedByName(t, "x:FP32[B,8] h:FP32[B,2] c:FP32[B,2]", "y:FP32[B,8] h_out:FP32[B,2] new_h:FP32[B,2] c_out:FP32[B,2]")
	require.Len(t, faults, 1)
	require.ErrorContains(t, faults[0], `input "h" could be paired`)
	require.ErrorContains(t, faults[0], "h_out, new_h")
	require.ErrorContains(t, faults[0], paste+`<<<h, h_out>>> <<<c, c_out>>>' } }`)

	_, faults = pairedByName(t, "x:FP32[B,8] h:FP32[B,2] h0:FP32[B,2]", "y:FP32[B,8] hn:FP32[B,2]")
	require.Len(t, faults, 1)
	require.ErrorContains(t, faults[0], `output "hn" could be paired`)
	require.ErrorContains(t, faults[0], "h, h0")
	require.ErrorContains(t, faults[0], paste+`<<<h, hn>>>' } }`)
}

// TestDocumentedForms: the page lists the forms that there are, and its examples are
// paired.
func TestDocumentedForms(t *testing.T) {
	var documented []form
	for _, cells := range docstable.Rows(t, "states.md", "| Input | Output |") {
		documented = append(documented, form{cells[0], cells[1]})
		in, out, found := strings.Cut(cells[2], " → ")
		require.True(t, found, "an example of %v", cells)
		in, out = in[strings.LastIndex(in, " ")+1:], strings.Fields(out)[0]
		require.Contains(t, formOutputs(cells[0], cells[1], in), out, "the example of %v", cells)
		pairs, faults := pairedByName(t, "some:FP32[B,8] "+in+":FP32[B,2]", "else:FP32[B,8] "+out+":FP32[B,2]")
		require.Empty(t, faults)
		require.Equal(t, "<<<"+in+", "+out+">>>", pairs)
	}
	require.Equal(t, alike, documented)
}

// TestDocumentedNamesThatDoNotTell: the error that the page shows is the one there is.
func TestDocumentedNamesThatDoNotTell(t *testing.T) {
	page, err := os.ReadFile("../../../docs/states.md")
	require.NoError(t, err)
	_, faults := pairedByName(t, "x:FP32[B,8] s:FP32[B,2]", "y:FP32[B,8] s_out:FP32[B,2] new_s:FP32[B,2]")
	require.Len(t, faults, 1)
	require.Contains(t, string(page), "\n"+faults[0].Error()+"\n")
}

func formOutputs(input, output, name string) []string {
	matches, ok := config.MatchPattern(input, name)
	if !ok {
		return nil
	}
	return []string{config.FillPattern(output, matches)}
}

// TestNoFormIsSaidTwice: a form that another one covers would be a second way of
// saying it.
func TestNoFormIsSaidTwice(t *testing.T) {
	for i, a := range alike {
		for j, b := range alike {
			matches, ok := config.MatchPattern(b.input, a.input)
			require.False(t, i != j && ok && config.FillPattern(b.output, matches) == a.output, "%v is covered by %v", a, b)
		}
	}
}
