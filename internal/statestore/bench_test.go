package statestore

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
)

// BenchmarkSave saves to one key after the other from 4 goroutines, as a saver does, and
// compares with the command SET. It reports the processor time of this process and of
// the server for each save. The figures are in docs/RATIONALE.md.
func BenchmarkSave(b *testing.B) {
	for _, size := range []int{64 << 10, 512 << 10, 1_900_000} {
		b.Run(fmt.Sprintf("file/%dK", size>>10), func(b *testing.B) {
			benchmarkSave(b, openForBenchmark(b, "file:"+b.TempDir()), nil, size)
		})
		for name, start := range map[string]func(*testing.B) (*server, string){"unix": startUnixServer, "tcp": startTCPServer} {
			b.Run(fmt.Sprintf("%s/%dK", name, size>>10), func(b *testing.B) {
				server, url := start(b)
				benchmarkSave(b, openForBenchmark(b, url), server, size)
			})
			b.Run(fmt.Sprintf("%s-set/%dK", name, size>>10), func(b *testing.B) {
				server, url := start(b)
				benchmarkSave(b, plainSet{openForBenchmark(b, url).(*valkeyStore)}, server, size)
			})
		}
	}
}

// plainSet saves by the command SET, for which no epoch is compared.
type plainSet struct{ *valkeyStore }

func (s plainSet) Save(ctx context.Context, key string, _ uint64, value []byte, ttl time.Duration) error {
	set := s.client.B().Set().Key(key + ":set").Value(valkey.BinaryString(value)).PxMilliseconds(ttl.Milliseconds())
	return s.client.Do(ctx, set.Build()).Error()
}

func openForBenchmark(b *testing.B, url string) Store {
	b.Helper()
	s, err := Open(url)
	require.NoError(b, err)
	b.Cleanup(s.Close)
	return s
}

func startUnixServer(b *testing.B) (*server, string) {
	b.Helper()
	server := startServer(b)
	return server, server.url()
}

// startTCPServer returns a server that also listens on a port that is free.
func startTCPServer(b *testing.B) (*server, string) {
	b.Helper()
	for {
		port := 20000 + rand.IntN(10000)
		server := newServer(b, "--port", fmt.Sprint(port), "--bind", "127.0.0.1")
		server.start(b)
		if !strings.Contains(server.log.String(), "Address already in use") {
			return server, fmt.Sprintf("valkey://127.0.0.1:%d", port)
		}
	}
}

func benchmarkSave(b *testing.B, s Store, server *server, size int) {
	const sequences, parallel = 64, 4
	var epochs [sequences]uint64
	for i := range epochs {
		var err error
		epochs[i], err = s.Begin(b.Context(), Key("bench", fmt.Sprint(i)), 0, minute)
		require.NoError(b, err)
	}
	jobs := make(chan int, sequences)
	done := make(chan error, parallel)
	start := make(chan bool)
	for range parallel {
		go func() {
			var last error
			value := make([]byte, size)
			for i := range value {
				value[i] = byte(rand.Uint32())
			}
			<-start
			for i := range jobs {
				if err := s.Save(b.Context(), Key("bench", fmt.Sprint(i)), epochs[i], value, minute); err != nil {
					last = err
				}
			}
			done <- last
		}()
	}
	time.Sleep(20 * time.Millisecond) // values are made
	b.SetBytes(int64(size))
	b.ResetTimer()
	before, serverBefore := processorTime(b), server.processorTime(b)
	close(start)
	for i := range b.N {
		jobs <- i % sequences
	}
	close(jobs)
	for range parallel {
		require.NoError(b, <-done)
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/1000, "client-µs/op")
	b.ReportMetric(float64(server.processorTime(b)-serverBefore)/float64(b.N)/1000, "server-µs/op")
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// processorTime is that of the server, 0 if there is none.
func (s *server) processorTime(b *testing.B) (used time.Duration) {
	b.Helper()
	if s == nil {
		return 0
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	require.NoError(b, err)
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')'):]))
	for _, field := range fields[12:14] { // user and system time, in hundredths of a second
		ticks, err := strconv.Atoi(field)
		require.NoError(b, err)
		used += time.Duration(ticks) * 10 * time.Millisecond
	}
	return used
}
