package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"tritonstateful/internal/bench/kserve"
	"tritonstateful/internal/bench/procstat"
)

const (
	// drainTime is how long the sequences may take to end after the measurement; a server that takes longer hangs.
	drainTime = 20 * time.Second
	// window is the HTTP/2 flow-control window: answers must never wait for it.
	window = 16 << 20
)

// load is a running load: streams in goroutines of their own.
type load struct {
	config  config
	pacer   *pacer
	conns   []*grpc.ClientConn
	streams []*stream
	running sync.WaitGroup
	cancel  context.CancelCauseFunc // ends all streams because one of them failed
}

// measure runs the three phases and sums them up.
func measure(ctx context.Context, c config) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &load{config: c, pacer: newPacer(c.requests), cancel: cancel}
	defer l.close()
	if err := l.open(ctx); err != nil {
		return Result{}, err
	}
	l.start()
	begin, end, err := l.pace(ctx)
	l.pacer.enter(phaseDrain)
	l.join()
	if cause := context.Cause(ctx); cause != nil {
		return Result{}, cause
	}
	if err != nil {
		return Result{}, err
	}
	return l.result(begin, end), nil
}

// open makes the connections and streams, and deals the sequences out to the streams, where they stay for good.
func (l *load) open(ctx context.Context) error {
	ids := newIDSource(l.config.firstID, l.config.stringIDs)
	for range min(l.config.streams, l.config.sequences) {
		conn, err := dial(l.config.url)
		if err != nil {
			return err
		}
		l.conns = append(l.conns, conn)
		rpc, err := kserve.StreamInfer(ctx, conn)
		if err != nil {
			return fmt.Errorf("open a stream to %s: %w", l.config.url, err)
		}
		l.streams = append(l.streams, &stream{rpc: rpc, pacer: l.pacer})
	}
	for index := range l.config.sequences {
		s := l.streams[index%len(l.streams)]
		q, err := newSequence(l.config, ids, index, len(s.sequences))
		if err != nil {
			return err
		}
		s.sequences = append(s.sequences, q)
	}
	return nil
}

func dial(url string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(url,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
		grpc.WithNoProxy(), // a benchmark through a proxy measures the proxy
	)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	return conn, nil
}

func (l *load) start() {
	for i, s := range l.streams {
		l.running.Go(func() {
			if err := s.run(); err != nil {
				l.cancel(fmt.Errorf("stream %d: %w", i, err))
			}
		})
	}
}

// reading is what the server's counters say at one moment.
type reading struct {
	at         time.Time
	statistics kserve.Statistics
	usage      procstat.Usage // only with a server's process ID
}

// pace waits out the warm-up and the measurement and reads the counters at its two ends, under load, so that neither
// the start nor the drain is measured.
func (l *load) pace(ctx context.Context) (begin, end reading, err error) {
	if err := sleep(ctx, l.config.warmup, nil); err != nil {
		return begin, end, err
	}
	if begin, err = l.read(ctx); err != nil {
		return begin, end, err
	}
	l.pacer.enter(phaseMeasure)
	if err := sleep(ctx, l.config.duration, l.pacer.enough); err != nil {
		return begin, end, err
	}
	end, err = l.read(ctx)
	return begin, end, err
}

// sleep waits for a time, or for early, or for the end of the context.
func sleep(ctx context.Context, d time.Duration, early <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-early:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (l *load) read(ctx context.Context) (r reading, err error) {
	if r.statistics, err = kserve.ReadStatistics(ctx, l.conns[0], l.config.model); err != nil {
		return r, err
	}
	if l.config.serverPID != 0 {
		if r.usage, err = procstat.ReadTree(l.config.serverPID); err != nil {
			return r, fmt.Errorf("usage of the server: %w", err)
		}
	}
	r.at = time.Now()
	return r, nil
}

// join waits for the streams. One that does not end in time is cancelled and makes the run fail.
func (l *load) join() {
	late := time.AfterFunc(drainTime, func() {
		l.cancel(fmt.Errorf("the last answers did not come within %v", drainTime))
	})
	defer late.Stop()
	l.running.Wait()
}

func (l *load) close() {
	for _, conn := range l.conns {
		conn.Close()
	}
}

func (l *load) result(begin, end reading) Result {
	var sum tally
	for _, s := range l.streams {
		sum.add(&s.tally)
	}
	return newResult(l.config, &sum, begin, end)
}
