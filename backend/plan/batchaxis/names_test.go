package batchaxis

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBatchNames: what is taken for a name of batches, and what is not.
func TestBatchNames(t *testing.T) {
	for _, name := range []string{"batch", "batch_size", "BatchSize", "x_batch", "token_lengths_batch", "batch axis", "dynamic_batch", "B", "b", "N", "n", "bs", "bsz", "nb", "bsize", "nbatch", "batch_axis"} {
		require.True(t, IsBatchName(name), name)
	}
	for _, name := range []string{"", "time", "T", "sequence", "batch*heads", "batch_size * 8", "batch + 1", "batched_sequence_length", "unbatched_frames", "s17", "x_dynamic_axes_1", "batch_mask_dynamic_axes_2", "Addbatch_dim_0"} {
		require.False(t, IsBatchName(name), name)
	}
}
