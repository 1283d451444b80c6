package cli

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tritonstateful/clients/go/kserve"
)

// fakeTriton serves the model vad, and keeps the samples that it was sent.
type fakeTriton struct {
	mu      sync.Mutex
	samples map[float32]bool
	refuses bool
}

func (f *fakeTriton) start(t *testing.T) (address string) {
	t.Helper()
	f.samples = map[float32]bool{}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		if strings.HasSuffix(method, "ModelMetadata") {
			return f.describe(stream)
		}
		request := &kserve.ModelInferRequest{}
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.refuses {
			return status.Error(codes.InvalidArgument, "x must be positive")
		}
		data := request.GetRawInputContents()[0]
		for ; len(data) >= 4; data = data[4:] {
			f.samples[math.Float32frombits(binary.LittleEndian.Uint32(data))] = true
		}
		return stream.SendMsg(&kserve.ModelInferResponse{})
	}))
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return "grpc://" + listener.Addr().String()
}

func (f *fakeTriton) describe(stream grpc.ServerStream) error {
	request := &kserve.ModelMetadataRequest{}
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	if request.GetName() != "vad" {
		return status.Error(codes.NotFound, "Request for unknown model")
	}
	return stream.SendMsg(&kserve.ModelMetadataResponse{Inputs: []*kserve.ModelMetadataResponse_TensorMetadata{
		{Name: "input", Datatype: "FP32", Shape: []int64{-1, -1}}, {Name: "sr", Datatype: "INT64", Shape: []int64{-1, 1}},
	}})
}

// recorded writes a .wav file with one sample, often.
func recorded(t *testing.T) (path string) {
	t.Helper()
	head := "RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data\x00\x08\x00\x00"
	path = filepath.Join(t.TempDir(), "call.wav")
	require.NoError(t, os.WriteFile(path, []byte(head+strings.Repeat("\x00\x40", 1024)), 0o600))
	return path
}

// numbers and bars are what differs between two loads, and whether a step was waited for at the end.
var (
	waited  = regexp.MustCompile(`(?m)^\d+ steps? waited .*\n`)
	bars    = regexp.MustCompile(`(?m)^ +[0-9.]+ ms +\d+  #*\n`)
	numbers = regexp.MustCompile(`[0-9][0-9.]*`)
)

func shape(text string) string {
	return numbers.ReplaceAllString(bars.ReplaceAllString(waited.ReplaceAllString(text, ""), "(bar)\n"), "N")
}

// TestLoadPage: the page shows what the command prints, but for numbers.
func TestLoadPage(t *testing.T) {
	address := (&fakeTriton{}).start(t)
	text, err := os.ReadFile(filepath.Join(docs, "command-load.md"))
	require.NoError(t, err)
	block := consoleBlock.FindStringSubmatch(string(text))
	require.NotNil(t, block)
	line, want, _ := strings.Cut(strings.TrimPrefix(block[1], "$ "), "\n")
	line = strings.NewReplacer("grpc://localhost:8001", address, "call.wav", recorded(t), "--duration 10s", "--duration 1s --warmup 0s", "p99=250ms", "p99=9s").Replace(line)
	collapse := regexp.MustCompile(`(\(bar\)\n)+`)
	require.Equal(t, collapse.ReplaceAllString(shape(want), "(bars)\n"), collapse.ReplaceAllString(shape(printed(t, line)), "(bars)\n"))
}

func TestLoadJSON(t *testing.T) {
	f := &fakeTriton{}
	address := f.start(t)
	code, out, _ := run(t, "load", address, "vad", "--sequences", "4", "--rate", "50/s", "--duration", "600ms", "--warmup", "100ms", "--steps", "5",
		"--shape", "input=1,512", "--data", recorded(t), "--slo", "p99=2s", "--slo", "p50=1ns", "--json")
	require.Equal(t, exitFound, code, "an objective is missed")
	var r loading
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.InDelta(t, 120, r.Steps+r.Unsent, 20)
	require.InDelta(t, 200, r.Wanted, 0.1)
	require.True(t, r.Objectives[0].Met)
	require.False(t, r.Objectives[1].Met)
	require.Equal(t, map[float32]bool{0.5: true}, f.samples)
	total := 0
	for _, b := range r.Histogram {
		total += b.Steps
	}
	require.Equal(t, r.Steps+r.Unsent, total)
}

func TestLoadFailures(t *testing.T) {
	address := (&fakeTriton{refuses: true}).start(t)
	code, out, _ := run(t, "load", address, "vad", "--shape", "input=1,512", "--duration", "300ms", "--warmup", "0s")
	require.Equal(t, exitFound, code)
	require.Contains(t, out, "x must be positive")
}

// TestLoadKills: kills are in the result, each with its restart; one that fails is seen in the exit code.
func TestLoadKills(t *testing.T) {
	address, said := (&fakeTriton{}).start(t), filepath.Join(t.TempDir(), "said")
	load := []string{"load", address, "vad", "--shape", "input=1,512", "--duration", "1s", "--warmup", "0s", "--json"}
	code, out, errs := run(t, append(load, "--kill", "echo kill >>"+said, "--kill-every", "400ms", "--restart", "echo restart >>"+said)...)
	require.Equal(t, exitFine, code, errs)
	var r loading
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.NotEmpty(t, r.Kills)
	require.Positive(t, r.Kills[0].Slowest)
	require.GreaterOrEqual(t, r.Kills[0].At, 0.39)
	text, err := os.ReadFile(said)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("kill\nrestart\n", len(r.Kills)), string(text))

	code, out, _ = run(t, append(load, "--kill", "exit 3")...)
	require.Equal(t, exitFound, code)
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, `run "exit 3": exit status 3`, r.Kills[0].Error)

	victim := exec.CommandContext(t.Context(), "sleep", "60")
	require.NoError(t, victim.Start())
	code, out, _ = run(t, append(load[:len(load)-1], "--kill", strconv.Itoa(victim.Process.Pid))...)
	require.Equal(t, exitFine, code)
	require.Equal(t, 1, strings.Count(out, "kill at "), out)
	require.ErrorContains(t, victim.Wait(), "killed")
}

func TestHistogram(t *testing.T) {
	require.Equal(t, []bar{{0.2, 1}, {0.5, 1}, {1, 0}, {2, 1}}, histogram([]time.Duration{200 * time.Microsecond, 201 * time.Microsecond, 2 * time.Millisecond}))
	require.Empty(t, histogram(nil))
}

func TestLoadArguments(t *testing.T) {
	address := (&fakeTriton{}).start(t)
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{exitUsage, "want grpc://HOST:PORT of", []string{"localhost:8001", "vad"}},
		{exitUsage, "want steps per second", []string{address, "vad", "--rate", "fast"}},
		{exitUsage, "want a percentile and a time", []string{address, "vad", "--slo", "p99"}},
		{exitUsage, "go with --kill", []string{address, "vad", "--restart", "true"}},
		{exitUsage, "can be killed once", []string{address, "vad", "--kill", "1", "--kill-every", "1s"}},
		{exitUsage, "excludes --resume", []string{address, "vad", "--stream", "--resume"}},
		{exitUsage, "--sequences and --steps of 1 or more", []string{address, "vad", "--sequences", "0"}},
		{exitUsage, "want --shape input=", []string{address, "vad"}},
		{exitUsage, "want 2 extents", []string{address, "vad", "--shape", "input=512"}},
		{exitUsage, "want input, sr", []string{address, "vad", "--shape", "x=1"}},
		{exitUsage, "no such input", []string{address, "vad", "--shape", "input=1,512", "--data", "x=call.wav"}},
		{exitFailed, "no such file", []string{address, "vad", "--shape", "input=1,512", "--data", "none.wav"}},
		{exitFailed, "it has 1024 elements", []string{address, "vad", "--shape", "input=1,2048", "--data", recorded(t)}},
		{exitFailed, "unknown model", []string{address, "asr"}},
	} {
		code, _, errs := run(t, append([]string{"load"}, c.args...)...)
		require.Equal(t, c.code, code, "%v: %s", c.args, errs)
		require.Contains(t, errs, c.want)
	}
}
