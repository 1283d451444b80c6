package ortrunner

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// share returns runners of one session.
func share(t testing.TB, path string, count int) []*runner {
	t.Helper()
	opened, err := testRuntime(t).Open(onnx.SessionOptions{Path: path, IntraOpThreads: 1})
	require.NoError(t, err)
	all := []*runner{opened.(*runner)}
	for len(all) < count {
		another, err := all[0].Share()
		require.NoError(t, err)
		all = append(all, another.(*runner))
	}
	for _, r := range all {
		t.Cleanup(r.Close)
	}
	return all
}

// TestShare: runners of one session run at the same time, each with its own memory, values
// and results, and go on when others are closed.
func TestShare(t *testing.T) {
	all := share(t, accumulate(2).Write(t), 4)
	require.Same(t, all[0].Signature(), all[3].Signature())
	var group sync.WaitGroup
	for i, r := range all {
		group.Go(func() {
			for step := range 200 {
				x := floats(t, r, tensor.Shape{1, 2}, float32(i), float32(step))
				y := zeros(t, r, tensor.FP32, tensor.Shape{1, 2})
				out := []onnx.Tensor{y, {DType: tensor.FP32}} // one output in our memory, one in theirs
				if err := r.Run([]onnx.Tensor{x, x}, out); err != nil {
					t.Error(err)
					return
				}
				if got := elements[float32](t, out[1]); got[0] != float32(2*i) || got[1] != float32(2*step) {
					t.Errorf("runner %d, step %d: %v", i, step, got)
				}
				if got := elements[float32](t, y); got[0] != float32(4*i) || got[1] != float32(4*step) {
					t.Errorf("runner %d, step %d: %v", i, step, got)
				}
			}
			if i != 3 {
				r.Close() // the others still run
			}
		})
	}
	group.Wait()
	require.EqualValues(t, 1, all[3].session.users.Load())
	_, err := all[0].Share()
	require.EqualError(t, err, "sharing a session that was closed")
	another, err := all[3].Share()
	require.NoError(t, err)
	all[3].Close()
	all[3].Close() // does nothing
	x := floats(t, another.(*runner), tensor.Shape{1, 2}, 1, 2)
	require.NoError(t, another.Run([]onnx.Tensor{x, x}, leftOpen(another)))
	another.Close()
	require.Zero(t, all[3].session.users.Load())
}

// TestSessionBytes: a session holds its weights once, however many runners it has.
func TestSessionBytes(t *testing.T) {
	const weights = 4 * 256 * 256 * 4 // of four layers
	all := share(t, layers(256, 4).Write(t), 2)
	require.GreaterOrEqual(t, all[0].SessionBytes(), int64(weights))
	require.Less(t, all[0].SessionBytes(), int64(2*weights))
	require.Equal(t, all[0].SessionBytes(), all[1].SessionBytes())
}
