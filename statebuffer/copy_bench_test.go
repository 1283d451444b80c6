package statebuffer

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkCopyThreads copies the states of 32 sequences from their slots, which
// no step has read for a while, into a batch, on one thread and with half of them
// on a second one that waits for work. It is why a step copies on one.
func BenchmarkCopyThreads(b *testing.B) {
	for _, bytes := range []int{8 << 10, 64 << 10, 512 << 10} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%dKiB/threads=%d", bytes>>10, threads), func(b *testing.B) {
				benchmarkCopyThreads(b, bytes, threads)
			})
		}
	}
}

func benchmarkCopyThreads(b *testing.B, bytes, threads int) {
	const lanes, batches = 32, 8
	slots := make([]byte, batches*lanes*bytes)
	for i := range slots {
		slots[i] = byte(i)
	}
	to := make([]byte, lanes*bytes)
	work, done := make(chan []byte), make(chan bool)
	defer close(work)
	go func() {
		runtime.LockOSThread()
		half := len(to) / 2
		for from := range work {
			copy(to[half:], from[half:])
			done <- true
		}
	}()
	cpu := processorTime(b)
	for i := 0; b.Loop(); i++ {
		from := slots[i%batches*len(to):][:len(to)]
		if threads == 1 {
			copy(to, from)
			continue
		}
		work <- from
		copy(to[:len(to)/2], from)
		<-done
	}
	sequences := float64(b.N * lanes)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/sequences, "ns/sequence")
	b.ReportMetric(float64((processorTime(b)-cpu).Nanoseconds())/sequences, "cpu-ns/sequence")
}

// processorTime is what this process has taken of all processors.
func processorTime(t testing.TB) time.Duration {
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
