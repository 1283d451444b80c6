package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/faketriton"
)

func batchOf(tb testing.TB, size int) []*faketriton.Request {
	calls := make([]faketriton.Call, size)
	for i := range calls {
		calls[i] = echoCall(uint64(i+1), int32(i), 1)
	}
	return requests(tb, calls...)
}

// BenchmarkSeam measures what a batch costs besides Triton and the model: it includes
// the fake server's functions and an echo.
func BenchmarkSeam(b *testing.B) {
	for _, size := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			s := serve(b, newEcho())
			rs := batchOf(b, size)
			ns, err := s.instance.ExecuteTimes(b.N, rs...)
			require.NoError(b, err)
			b.ReportMetric(float64(ns)/float64(b.N)/float64(size), "ns/request")
			b.ReportMetric(float64(faketriton.Calls())/float64(b.N)/float64(size), "calls/request")
			b.ReportAllocs()
		})
	}
}
