package load

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tritonstateful/clients/go/kserve"
)

// fake answers as Triton does, and counts.
type fake struct {
	mu       sync.Mutex
	open     map[int64]int // steps of the sequences that are open
	requests int
	streams  int
	values   map[byte]bool // first bytes
	before   func(request int) error
}

func startFake(t *testing.T, f *fake) string {
	t.Helper()
	f.open, f.values = map[int64]int{}, map[byte]bool{}
	infer := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request := &kserve.ModelInferRequest{}
		if err := decode(request); err != nil {
			return nil, err
		}
		done := request.GetParameters()["stateful_step"].GetInt64Param() + 1 // of the backend
		number := &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_Int64Param{Int64Param: done}}
		response := &kserve.ModelInferResponse{Parameters: map[string]*kserve.InferParameter{"stateful_step": number, "stateful_saved_step": number}}
		return response, f.infer(request)
	}
	describe := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request := &kserve.ModelMetadataRequest{}
		if err := decode(request); err != nil {
			return nil, err
		}
		if request.GetName() != "fake" {
			return nil, status.Error(codes.NotFound, "unknown model")
		}
		return &kserve.ModelMetadataResponse{Inputs: []*kserve.ModelMetadataResponse_TensorMetadata{{Name: "x", Datatype: "FP32", Shape: []int64{-1, 4}}}}, nil
	}
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "inference.GRPCInferenceService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "ModelInfer", Handler: infer}, {MethodName: "ModelMetadata", Handler: describe}},
		Streams: []grpc.StreamDesc{{StreamName: "ModelStreamInfer", Handler: f.stream, ServerStreams: true, ClientStreams: true}},
	}, f)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func (f *fake) infer(request *kserve.ModelInferRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if f.before != nil {
		if err := f.before(f.requests); err != nil {
			return err
		}
	}
	parameters := request.GetParameters()
	id := parameters["sequence_id"].GetInt64Param()
	_, known := f.open[id]
	if start := parameters["sequence_start"].GetBoolParam(); !start && !known {
		return status.Error(codes.InvalidArgument, "inference request for sequence must specify the START flag")
	} else if start {
		f.open[id] = 0
	}
	f.open[id]++
	f.values[request.GetRawInputContents()[0][0]] = true
	if parameters["sequence_end"].GetBoolParam() {
		delete(f.open, id)
	}
	return nil
}

// stream answers the requests of a stream; an error is a message, as Triton sends it.
func (f *fake) stream(_ any, stream grpc.ServerStream) error {
	f.mu.Lock()
	f.streams++
	f.mu.Unlock()
	for {
		request := &kserve.ModelInferRequest{}
		if err := stream.RecvMsg(request); err != nil {
			return nil // the client is done
		}
		response := &kserve.ModelStreamInferResponse{InferResponse: &kserve.ModelInferResponse{}}
		if err := f.infer(request); err != nil {
			response.ErrorMessage = err.Error()
		}
		if err := stream.SendMsg(response); err != nil {
			return err
		}
	}
}

func paces(url string) Paced {
	return Paced{
		URLs: []string{url}, Model: "fake", Sequences: 5, Rate: 40, Steps: 4, Warmup: 100 * time.Millisecond, Duration: 500 * time.Millisecond,
		Inputs: []Input{{Name: "x", Datatype: "FP32", Shape: []int64{1, 4}}},
	}
}

// TestPaceKeepsItsRate: 5 sequences of 40 steps a second, and none is left open.
func TestPaceKeepsItsRate(t *testing.T) {
	for _, resume := range []bool{false, true} {
		f := &fake{}
		p := paces(startFake(t, f))
		p.Resume = resume
		seen := 0
		p.Duration = time.Second
		p.Progress = func(now Progress) { seen += int(now.Rate) }
		got, err := Pace(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(got.Latencies); n < 150 || n > 210 || got.Failed > 0 {
			t.Errorf("resume %v: %d steps, want about 200; %+v", resume, n, got.Texts)
		}
		if seen < 120 || len(f.open) > 0 {
			t.Errorf("resume %v: progress says %d steps, %d sequences are open", resume, seen, len(f.open))
		}
		if p50, p99 := got.Percentile(50), got.Percentile(99); p50 <= 0 || p99 < p50 || got.Took != p.Duration {
			t.Errorf("p50 %v, p99 %v, took %v", p50, p99, got.Took)
		}
	}
}

// TestPaceOverStreams: each sequence has a stream, whose errors and end are those of the sequence.
func TestPaceOverStreams(t *testing.T) {
	f := &fake{before: func(request int) error {
		if request == 20 {
			return status.Error(codes.InvalidArgument, "x must be positive")
		}
		return nil
	}}
	p := paces(startFake(t, f))
	p.Stream = true
	p.Inputs[0].Datatype = "BYTES"
	answered := 0
	p.Answered = func(time.Time, time.Duration) { answered++ }
	got, err := Pace(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.Latencies); n < 60 || n != answered+got.Unsent || got.Failed != 1 || !strings.Contains(got.Texts[0], "x must be positive") {
		t.Errorf("%d steps, %d answered, %d failed: %v", n, answered, got.Failed, got.Texts)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if want := f.requests / p.Steps; f.streams < want || f.streams > want+2*p.Sequences || len(f.open) > 1 { // the one that failed
		t.Errorf("%d streams for %d requests, %d sequences are open", f.streams, f.requests, len(f.open))
	}
}

// TestPaceCountsFromWhenAStepWasDue: a server that stands still for a while delays all that was due then.
func TestPaceCountsFromWhenAStepWasDue(t *testing.T) {
	f := &fake{before: func(request int) error {
		if request == 40 {
			time.Sleep(300 * time.Millisecond) // with the lock
		}
		return nil
	}}
	got, err := Pace(t.Context(), paces(startFake(t, f)))
	if err != nil {
		t.Fatal(err)
	}
	late := 0
	for _, took := range got.Latencies {
		if took > 50*time.Millisecond {
			late++
		}
	}
	if late < 30 { // 5 sequences × 40/s × 0.25 s are 50
		t.Errorf("%d steps were late, want those of a quarter of a second", late)
	}
}

// TestPaceCountsStepsThatWait: a server that stands still until the end delays all that was due, not only the one step of each
// sequence that was sent.
func TestPaceCountsStepsThatWait(t *testing.T) {
	f := &fake{before: func(request int) error {
		if request == 40 {
			time.Sleep(2 * time.Second) // with the lock, beyond the end
		}
		return nil
	}}
	p := paces(startFake(t, f))
	p.Duration = time.Second
	got, err := Pace(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	// 5 sequences × 40/s are 200 steps, of which 40 were answered at once.
	if n := len(got.Latencies); n < 190 || n > 205 || got.Unsent < 100 || got.Percentile(50) < time.Second {
		t.Errorf("%d steps, %d unsent, p50 %v: want all 200 steps, most of them late", n, got.Unsent, got.Percentile(50))
	}
}

// TestPaceCountsFailures: a failure ends the sequence, unless it is to be continued.
func TestPaceCountsFailures(t *testing.T) {
	for _, resume := range []bool{false, true} {
		f := &fake{before: func(request int) error {
			if request == 20 {
				return status.Error(codes.Unavailable, "gone")
			}
			return nil
		}}
		p := paces(startFake(t, f))
		p.Resume = resume
		p.Piece = func(input, sequence, step int) []byte { return append([]byte{9}, make([]byte, 15)...) }
		got, err := Pace(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		want, continued := 1, 0
		if resume {
			want, continued = 0, 1
		}
		if got.Failed != want || got.Resumed != continued || len(f.values) != 1 || !f.values[9] {
			t.Errorf("resume %v: %d failed, %d resumed, %v, first bytes %v", resume, got.Failed, got.Resumed, got.Texts, f.values)
		}
	}
}

// TestPaceIsInterrupted: the sequences end in order, and nothing that was cut off counts as a failure.
func TestPaceIsInterrupted(t *testing.T) {
	for _, stream := range []bool{false, true} {
		f := &fake{}
		p := paces(startFake(t, f))
		p.Duration, p.Steps, p.Stream = time.Minute, 1000, stream
		ctx, interrupt := context.WithTimeout(t.Context(), 400*time.Millisecond)
		got, err := Pace(ctx, p)
		interrupt()
		if err != nil {
			t.Fatal(err)
		}
		if got.Failed > 0 || len(got.Latencies) == 0 || len(f.open) > 0 || got.Took > 30*time.Second {
			t.Errorf("stream %v: %d failed (%v), %d steps, %d sequences are open, took %v", stream, got.Failed, got.Texts, len(got.Latencies), len(f.open), got.Took)
		}
	}
}

func TestDescribe(t *testing.T) {
	url := startFake(t, &fake{})
	inputs, err := Describe(t.Context(), url, "fake")
	if err != nil || len(inputs) != 1 || inputs[0].Shape[0] != -1 {
		t.Errorf("%v, %v", inputs, err)
	}
	if _, err := Describe(t.Context(), url, "none"); status.Code(err) != codes.NotFound {
		t.Errorf("%v", err)
	}
	p := paces(url)
	p.Inputs[0].Datatype = "FP8"
	if _, err := Pace(t.Context(), p); err == nil {
		t.Error("made data of a type that Triton does not have")
	}
	p = paces(url)
	p.Stream, p.Resume = true, true
	if _, err := Pace(t.Context(), p); err == nil {
		t.Error("resumes sequences over streams")
	}
}
