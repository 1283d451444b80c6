package main

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

	"tritonstateful/clients/go/kserve"
)

// TestStreamsEndInOrder: when it is time each stream is half-closed, so that the server sees its end and not that it was
// cancelled, after which tritonserver cannot unload its models; the clients wait until the server has ended it, too.
func TestStreamsEndInOrder(t *testing.T) {
	ends := make(chan error, 1)
	url := serve(t, func(_ any, stream grpc.ServerStream) error {
		var r kserve.ModelStreamInferResponse
		ends <- stream.RecvMsg(&r)
		return nil
	})
	if err := endAtOnce(t, url); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ends:
		if !errors.Is(err, io.EOF) {
			t.Errorf("the server sees the end of the stream as %v, want %v", err, io.EOF)
		}
	case <-time.After(10 * time.Second):
		t.Error("the server does not see the end of the stream")
	}
}

// TestAStreamThatEndsBadlyIsToldOf: a server that ends a stream with an error fails the soak also when all has been
// answered.
func TestAStreamThatEndsBadlyIsToldOf(t *testing.T) {
	bad := errors.New("no")
	url := serve(t, func(_ any, stream grpc.ServerStream) error {
		var r kserve.ModelStreamInferResponse
		_ = stream.RecvMsg(&r) // until it is half-closed
		return bad
	})
	if err := endAtOnce(t, url); err == nil {
		t.Error("a stream that the server ended with an error counts as a good one")
	}
}

// endAtOnce is a soak of the server there that is over before the first request.
func endAtOnce(t *testing.T, url string) error {
	t.Helper()
	s := &soak{config: config{url: url, models: []string{"m"}, clients: 1, streams: 1, duration: time.Minute}}
	s.ended.Store(true)
	streams, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	return s.drive(t.Context(), streams)
}

// serve is the address of a server that handles every stream so.
func serve(t *testing.T, handle grpc.StreamHandler) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(handle))
	go server.Serve(listener) //nolint:errcheck // it ends when the test does
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}
