package stateful

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"tritonstateful/clients/go/kserve"
)

type state struct{ step, sum int64 }

// fakeStore has the saved states by key, and which server has each.
type fakeStore struct {
	mu    sync.Mutex
	every int64 // a state is saved after so many steps; 0: only if asked
	saved map[string]state
	prior map[string]state // the ones before
	owner map[string]*fakeServer
}

func newStore(every int64) *fakeStore {
	return &fakeStore{every: every, saved: map[string]state{}, prior: map[string]state{}, owner: map[string]*fakeServer{}}
}

func (f *fakeStore) save(key string, s state) {
	if old, found := f.saved[key]; found && old.step < s.step {
		f.prior[key] = old
	}
	f.saved[key] = s
}

// goesBack reports whether the state before is that of a client that has only so many answers.
func (f *fakeStore) goesBack(key string, answers int64) bool {
	prior, found := f.prior[key]
	return found && prior.step <= answers && f.saved[key].step > answers
}

func (f *fakeStore) take(key string, answers int64) state {
	if f.goesBack(key, answers) {
		f.saved[key] = f.prior[key]
		delete(f.prior, key)
	}
	return f.saved[key]
}

func (f *fakeStore) drop(key string) {
	delete(f.saved, key)
	delete(f.prior, key)
}

// has reports whether a state is saved for a client that has only so many answers.
func (f *fakeStore) has(key string, answers int64) bool {
	saved, found := f.saved[key]
	return found && saved.step <= answers || f.goesBack(key, answers)
}

type live struct {
	key   string
	state state
	saved int64
}

// sent is what a server was sent.
type sent struct {
	step          int64
	start, resume bool
}

// fakeServer answers as Triton with the stateful backend does. Its model sums up what a sequence has sent. A test may set
// before and after, which are called in each request, before it runs and before its answer.
type fakeServer struct {
	address       string
	store         *fakeStore
	before, after func() error
	stepless      bool
	server        *grpc.Server

	live    map[int64]*live // these under the store's lock
	sent    []sent
	headers map[string]bool
}

func startFake(t *testing.T, store *fakeStore) *fakeServer {
	f := &fakeServer{address: "127.0.0.1:0", store: store, headers: map[string]bool{}}
	f.start(t)
	t.Cleanup(func() { f.server.Stop() })
	return f
}

func (f *fakeServer) start(t *testing.T) {
	listener, err := net.Listen("tcp", f.address)
	for range 100 { // its old port may still be in use for a moment
		if err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
		listener, err = net.Listen("tcp", f.address)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.address, f.live, f.server = listener.Addr().String(), map[int64]*live{}, grpc.NewServer()
	infer := func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		return f.infer(ctx, decode)
	}
	f.server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "inference.GRPCInferenceService",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "ModelInfer", Handler: infer}},
	}, f)
	go func() { _ = f.server.Serve(listener) }()
}

// die ends at once: requests that run get no answer.
func (f *fakeServer) die() { f.server.Stop() }

func (f *fakeServer) infer(ctx context.Context, decode func(any) error) (any, error) {
	request := &kserve.ModelInferRequest{}
	if err := decode(request); err != nil {
		return nil, err
	}
	if f.before != nil {
		if err := f.before(); err != nil {
			return nil, err
		}
	}
	f.store.mu.Lock()
	if md, _ := metadata.FromIncomingContext(ctx); len(md[header]) == 1 {
		f.headers[md[header][0]] = true
	}
	l, err := f.run(request)
	f.store.mu.Unlock()
	if err == nil && f.after != nil {
		err = f.after()
	}
	if err != nil {
		return nil, err
	}
	response := &kserve.ModelInferResponse{
		Outputs:           []*kserve.ModelInferResponse_InferOutputTensor{{Name: "y", Datatype: "INT64", Shape: []int64{1, 1}}},
		RawOutputContents: [][]byte{binary.LittleEndian.AppendUint64(nil, uint64(l.state.sum))},
		Parameters:        map[string]*kserve.InferParameter{},
	}
	if !f.stepless {
		for name, value := range map[string]int64{"stateful_step": l.state.step, "stateful_saved_step": l.saved} {
			response.Parameters[name] = &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_Int64Param{Int64Param: value}}
		}
	}
	return response, nil
}

func (f *fakeServer) run(request *kserve.ModelInferRequest) (live, error) {
	p := request.Parameters
	id, step, start := p["sequence_id"].GetInt64Param(), p["stateful_step"].GetInt64Param(), p["sequence_start"].GetBoolParam()
	resume := p["stateful_resume"].GetStringParam() == "try"
	f.sent = append(f.sent, sent{step, start, resume})
	l := f.live[id]
	switch key := p["stateful_key"].GetStringParam(); {
	case start && (!resume || l == nil || f.store.owner[key] != f || l.state.step > step && f.store.has(key, step)):
		f.store.owner[key] = f
		if !resume {
			f.store.drop(key)
		}
		saved := f.store.take(key, step)
		l = &live{key: key, state: saved, saved: saved.step}
		f.live[id] = l
	case !start && l == nil:
		return live{}, status.Error(codes.InvalidArgument, "inference request for sequence 1 must specify the START flag on the first request")
	}
	switch {
	case step < l.state.step:
		return live{}, status.Errorf(codes.AlreadyExists, "step %d was done before: expected step %d", step, l.state.step)
	case step > l.state.step:
		return live{}, status.Errorf(codes.InvalidArgument, "stateful_step %d leaves a gap: expected step %d", step, l.state.step)
	}
	value := int64(binary.LittleEndian.Uint64(request.RawInputContents[0]))
	if value < 0 {
		return live{}, status.Error(codes.InvalidArgument, "error during inference: a negative value")
	}
	l.state = state{l.state.step + 1, l.state.sum + value}
	if f.store.every > 0 && l.state.step%f.store.every == 0 || p["stateful_save"].GetBoolParam() {
		f.store.save(l.key, l.state)
		l.saved = l.state.step
	}
	if p["sequence_end"].GetBoolParam() {
		f.store.drop(l.key)
		delete(f.live, id)
	}
	return *l, nil
}
