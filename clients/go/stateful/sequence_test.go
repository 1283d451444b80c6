package stateful

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tritonstateful/clients/go/kserve"
)

// begin makes a sequence on the servers.
func begin(t *testing.T, o Options, servers ...*fakeServer) *Sequence {
	t.Helper()
	var addresses []string
	for _, server := range servers {
		addresses = append(addresses, server.address)
	}
	conns, err := Dial(addresses...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, conn := range conns {
			conn.Close()
		}
	})
	if o.Delay == 0 {
		o.Delay, o.Attempts = 10*time.Millisecond, 30
	}
	return New(conns, "sum", o)
}

func input(value int64) []kserve.Tensor {
	data := binary.LittleEndian.AppendUint64(nil, uint64(value))
	return []kserve.Tensor{{Name: "x", Datatype: "INT64", Shape: []int64{1, 1}, Data: data}}
}

// play sends values; each answer must be the sum of all numbers up to it.
func play(t *testing.T, s *Sequence, from, to int64) {
	t.Helper()
	for value := from; value < to; value++ {
		answer, err := s.Infer(t.Context(), input(value))
		if err != nil {
			t.Fatalf("step %d: %v", value, err)
		}
		if got, want := int64(binary.LittleEndian.Uint64(answer.Outputs[0].Data)), value*(value+1)/2; got != want || answer.Step != value+1 {
			t.Fatalf("step %d of %d: %d, want %d", answer.Step, value+1, got, want)
		}
	}
}

func TestWithoutFaults(t *testing.T) {
	server := startFake(t, newStore(3))
	s := begin(t, Options{}, server)
	play(t, s, 0, 5)
	answer, err := s.End(t.Context(), input(5), Outputs("y"))
	if err != nil || answer.Saved != 3 && answer.Saved != 6 {
		t.Fatal(answer, err)
	}
	if _, err := s.Infer(t.Context(), input(6)); !errors.Is(err, ErrEnded) {
		t.Fatal(err)
	}
	if !server.headers[s.Key()] || len(server.headers) != 1 || s.Recoveries() != 0 {
		t.Error(server.headers, s.Recoveries())
	}
}

func TestAServerDiesAtAnyStep(t *testing.T) {
	for at := range int64(8) {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			store := newStore(3)
			servers := []*fakeServer{startFake(t, store), startFake(t, store)}
			s := begin(t, Options{}, servers...)
			play(t, s, 0, at)
			servers[s.server].die()
			play(t, s, at, 10)
			if s.Recoveries() != 1 {
				t.Error(s.Recoveries())
			}
		})
	}
}

// TestWhatIsSentAgain: first the step that has no answer; the server's answer tells where the replay begins.
func TestWhatIsSentAgain(t *testing.T) {
	store := newStore(3)
	servers := []*fakeServer{startFake(t, store), startFake(t, store)}
	s := begin(t, Options{}, servers...)
	play(t, s, 0, 5)
	other := servers[1-s.server]
	servers[s.server].die()
	play(t, s, 5, 6)
	if want := []sent{{5, true, true}, {3, true, true}, {4, false, false}, {5, false, false}}; !slices.Equal(other.sent, want) {
		t.Error(other.sent)
	}
}

func TestServersDieAgainAndAgain(t *testing.T) {
	store, rng := newStore(3), rand.New(rand.NewPCG(1, 2))
	servers := []*fakeServer{startFake(t, store), startFake(t, store)}
	s := begin(t, Options{}, servers...)
	for value := range int64(60) {
		if rng.Float64() < 0.3 {
			server := servers[rng.IntN(2)]
			server.die()
			server.start(t)
		}
		play(t, s, value, value+1)
	}
}

func TestAHungServer(t *testing.T) {
	store := newStore(3)
	servers := []*fakeServer{startFake(t, store), startFake(t, store)}
	s := begin(t, Options{AttemptTimeout: 200 * time.Millisecond}, servers...)
	play(t, s, 0, 4)
	servers[s.server].before = func() error { time.Sleep(time.Second); return nil }
	play(t, s, 4, 8)
}

// lose has the server die after the next step was saved, before its answer.
func lose(f *fakeServer) {
	f.after = func() error {
		f.store.mu.Lock()
		for _, l := range f.live {
			f.store.save(l.key, l.state)
		}
		f.store.mu.Unlock()
		go f.die()
		time.Sleep(100 * time.Millisecond)
		return nil
	}
}

func TestAnAnswerThatWasLost(t *testing.T) {
	for _, test := range []struct {
		name  string
		every int64
		keep  int
		lost  bool
	}{{"all requests are kept", 0, 0, false}, {"some were dropped", 3, 0, false}, {"and the state before is gone", 3, 16, true}} {
		t.Run(test.name, func(t *testing.T) {
			store := newStore(test.every)
			servers := []*fakeServer{startFake(t, store), startFake(t, store)}
			s := begin(t, Options{KeepBytes: test.keep}, servers...)
			play(t, s, 0, 7)
			if test.lost {
				clear(store.saved)
				clear(store.prior)
			}
			lose(servers[s.server])
			if !test.lost {
				play(t, s, 7, 12)
				return
			}
			var lost *AnswerLostError
			if _, err := s.Infer(t.Context(), input(7)); !errors.As(err, &lost) || lost.Step != 7 {
				t.Fatal(err)
			}
			play(t, s, 8, 12)
		})
	}
}

// TestAConnectionIsLostAndTheServerIsNot: the server has gone on by one step, which it does once more.
func TestAConnectionIsLostAndTheServerIsNot(t *testing.T) {
	server := startFake(t, newStore(3))
	s := begin(t, Options{}, server)
	play(t, s, 0, 7)
	for step := range int64(3) { // of which 8 is saved
		server.after = func() error {
			server.after = nil
			return status.Error(codes.Unavailable, "the connection was reset")
		}
		play(t, s, 7+step, 8+step)
	}
	if s.Recoveries() != 3 {
		t.Error(s.Recoveries())
	}
}

func TestStateLost(t *testing.T) {
	for _, test := range []struct {
		name  string
		every int64
		keep  int
		want  StateLostError
	}{
		{"the saved state is gone", 3, 0, StateLostError{Resumed: 0, Kept: 3}},
		{"too much to keep", 0, 24, StateLostError{Resumed: 0, Kept: 4}},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := newStore(test.every)
			servers := []*fakeServer{startFake(t, store), startFake(t, store)}
			s := begin(t, Options{KeepBytes: test.keep}, servers...)
			play(t, s, 0, 7)
			servers[s.server].die()
			clear(store.saved)
			var lost *StateLostError
			if _, err := s.Infer(t.Context(), input(7)); !errors.As(err, &lost) || *lost != test.want {
				t.Fatal(err)
			}
		})
	}
}

func TestNoServerIsLeft(t *testing.T) {
	server := startFake(t, newStore(3))
	s := begin(t, Options{Attempts: 5, Delay: 10 * time.Millisecond}, server)
	play(t, s, 0, 2)
	server.die()
	_, err := s.Infer(t.Context(), input(2))
	if !errors.Is(err, ErrServersLost) || status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
	server.start(t)
	time.Sleep(500 * time.Millisecond) // gRPC connects again
	play(t, s, 2, 4)
}

func TestErrorsOfARequestAreNoLoss(t *testing.T) {
	server := startFake(t, newStore(3))
	s := begin(t, Options{}, server)
	play(t, s, 0, 4)
	if _, err := s.Infer(t.Context(), input(-1)); status.Code(err) != codes.InvalidArgument {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Infer(ended, input(4)); status.Code(err) != codes.Canceled {
		t.Fatal(err)
	}
	play(t, s, 4, 6)
	if s.Recoveries() != 0 {
		t.Error(s.Recoveries())
	}
}

func TestAFullServer(t *testing.T) {
	store := newStore(3)
	servers := []*fakeServer{startFake(t, store), startFake(t, store)}
	s := begin(t, Options{}, servers...)
	servers[s.server].before = func() error { return status.Error(codes.Internal, "too many simultaneous sequences: 3") }
	play(t, s, 0, 3)
}

func TestAServerThatCountsNoSteps(t *testing.T) {
	server := startFake(t, newStore(3))
	server.stepless = true
	if _, err := begin(t, Options{}, server).Infer(t.Context(), input(0)); !errors.Is(err, ErrUnsupported) {
		t.Fatal(err)
	}
}

func TestSave(t *testing.T) {
	server := startFake(t, newStore(0))
	answer, err := begin(t, Options{}, server).Infer(t.Context(), input(1), Save())
	if err != nil || answer.Saved != 1 {
		t.Fatal(answer, err)
	}
}
