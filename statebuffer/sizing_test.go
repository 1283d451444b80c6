package statebuffer

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSizing has the checked values of NVIDIA's arithmetic, which must mean the
// same number of slots here.
func TestSizing(t *testing.T) {
	sample := &LazyBuffers{Initial: 512, Subsequent: 100, AllocThreshold: 32, DeallocThreshold: 200}
	tests := []struct {
		name                 string
		candidates, maxBatch int
		ratio                float32
		lazy                 *LazyBuffers
		want                 Sizing
		total                int
	}{
		{"the sample configuration", 1280, 16, 0.9, sample, Sizing{512, 100, 7, 32, 200}, 1112},
		{"not lazy", 1280, 16, 0.9, nil, Sizing{1152, 16, 1, 16, 1280}, 1152},
		{"ratio 1", 1280, 16, 1, nil, Sizing{1280, 16, 1, 16, 1280}, 1280},
		{"a ratio above 1 makes chunks of the batch", 1280, 16, 1.2, nil, Sizing{1280, 16, 17, 16, 1280}, 1536},
		{"smallest that fits 0.9", 18, 16, 0.9, nil, Sizing{16, 16, 1, 16, 18}, 16},
		{"one", 1, 1, 1, nil, Sizing{1, 1, 1, 1, 1}, 1},
		{"fewer than the batch", 4, 8, 1, nil, Sizing{4, 8, 1, 8, 4}, 4},
		{"fewer than the batch, by the ratio", 16, 16, 0.9, nil, Sizing{14, 16, 1, 16, 16}, 14},
		{"fewer candidates than the batch, not fewer slots", 4, 8, 2, nil, Sizing{8, 8, 1, 8, 4}, 8},
		{"fewer candidates than the batch, more slots", 4, 8, 4, nil, Sizing{8, 8, 2, 8, 4}, 16},
		{"first chunk above the total is cut", 100, 10, 0.9, &LazyBuffers{1000, 10, 10, 20}, Sizing{90, 10, 1, 10, 20}, 90},
		{"room for one more chunk exactly", 100, 10, 1, &LazyBuffers{60, 40, 10, 60}, Sizing{60, 40, 2, 10, 60}, 100},
		{"room for one chunk less one slot", 100, 10, 1, &LazyBuffers{60, 41, 10, 60}, Sizing{60, 41, 1, 10, 60}, 60},
		{"thresholds of the smallest allowed", 100, 10, 1, &LazyBuffers{10, 10, 10, 0}, Sizing{10, 10, 10, 10, 0}, 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := NewSizing(tt.candidates, tt.maxBatch, tt.ratio, tt.lazy)
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.total, got.Total())
			require.Equal(t, got.MaxChunks > 1, got.Lazy())
		})
	}
}

func TestSizingRejects(t *testing.T) {
	lazy := func(initial, subsequent, alloc, dealloc int) *LazyBuffers {
		return &LazyBuffers{initial, subsequent, alloc, dealloc}
	}
	tests := []struct {
		name                 string
		candidates, maxBatch int
		ratio                float32
		lazy                 *LazyBuffers
		faults               []string
	}{
		{"as many candidates as the batch, with chunks", 16, 16, 0.9, lazy(16, 16, 14, 16), []string{"there are 14 slots, max_candidate_sequences 16 times max_candidate_sequence_use_ratio 0.9, rounded down: with initial_buffer_size there must be at least max_batch_size, 16", "raise max_candidate_sequences"}},
		{"first chunk of few candidates", 4, 8, 2, lazy(4, 8, 8, 16), []string{"the first chunk has 4 slots, initial_buffer_size: it must have at least max_batch_size, 8"}},
		{"first chunk", 1280, 16, 0.9, lazy(15, 16, 16, 200), []string{"the first chunk has 15 slots"}},
		{"subsequent", 1280, 16, 0.9, lazy(512, 15, 16, 200), []string{"subsequent_buffer_size is 15: it must be at least max_batch_size, 16"}},
		{"alloc threshold too small", 1280, 16, 0.9, lazy(512, 16, 15, 200), []string{"buffer_alloc_threshold is 15: it must be at least max_batch_size, 16"}},
		{"alloc threshold above the first chunk", 1280, 16, 0.9, lazy(512, 16, 513, 200), []string{"buffer_alloc_threshold is 513"}},
		{"everything at once", 1280, 16, 0.9, lazy(0, 0, 1, 0), []string{"first chunk has 0", "subsequent_buffer_size is 0", "buffer_alloc_threshold is 1: it must be at least", "buffer_alloc_threshold is 1: it must not be above"}},
		{"ratio 0", 1280, 16, 0, nil, []string{"there are 0 slots", "ratio 0", "there must be at least one"}},
		{"ratio negative", 1280, 16, -1, nil, []string{"not a valid number"}},
		{"ratio NaN", 1280, 16, float32(math.NaN()), nil, []string{"not a valid number"}},
		{"ratio infinite", 1280, 16, float32(math.Inf(1)), nil, []string{"not a valid number"}},
		{"more slots than can be numbered", 1280, 16, 1e9, nil, []string{"not a valid number"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewSizing(tt.candidates, tt.maxBatch, tt.ratio, tt.lazy)
			for _, fault := range tt.faults {
				require.ErrorContains(t, err, fault)
			}
		})
	}
}

// TestSizingAgreesWithExactArithmetic: float32 gives the integers that a person
// computes by hand, for all usual numbers.
func TestSizingAgreesWithExactArithmetic(t *testing.T) {
	for _, percent := range []int{10, 20, 30, 50, 70, 80, 90, 95, 99, 100} {
		for candidates := 1; candidates < 5000; candidates++ {
			want := candidates * percent / 100
			got, err := NewSizing(candidates, 1, float32(percent)/100, nil)
			if want == 0 {
				require.Error(t, err)
				continue
			}
			if err != nil || got.Total() != want {
				t.Fatalf("%d candidates at %d%%: %+v, %v: want %d slots", candidates, percent, got, err, want)
			}
		}
	}
}

// TestSizingOfSeveralInstances: the ratio counts once for each, not once more
// for every instance made before.
func TestSizingOfSeveralInstances(t *testing.T) {
	lazy := &LazyBuffers{512, 100, 32, 200}
	first, err := NewSizing(1280, 16, 0.9, lazy)
	require.NoError(t, err)
	for range 3 {
		again, err := NewSizing(1280, 16, 0.9, lazy)
		require.NoError(t, err)
		require.Equal(t, first, again)
	}
	require.Equal(t, LazyBuffers{512, 100, 32, 200}, *lazy)
}
