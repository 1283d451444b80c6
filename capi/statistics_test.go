package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/faketriton"
	"tritonstateful/statebuffer"
)

func inOrder(t *testing.T, s faketriton.Statistics) {
	t.Helper()
	require.Positive(t, s.ExecStart)
	require.LessOrEqual(t, s.ExecStart, s.ComputeStart)
	require.LessOrEqual(t, s.ComputeStart, s.ComputeEnd)
	require.LessOrEqual(t, s.ComputeEnd, s.ExecEnd)
}

// timed is an echo of one request per call, which reports those times.
func timed(timing func() backend.Timing) *fakeInstance {
	in := newEcho()
	good := in.execute
	in.execute = func(b backend.Batch) { good(finisher{b, timing}) }
	return in
}

type finisher struct {
	backend.Batch
	timing func() backend.Timing
}

func (f finisher) Finish(backend.Timing) { f.Batch.Finish(f.timing()) }

func TestStatisticsOfARun(t *testing.T) {
	clock := newClock()
	var given backend.Timing
	s := serve(t, timed(func() backend.Timing {
		given.ComputeEnd = clock()
		given.ComputeStart = given.ComputeEnd - time.Microsecond
		return given
	}))
	unreadable := echoCall(3, 0, 0)
	unreadable.Inputs = nil
	rs := s.execute(t, echoCall(1, 1, 2), unreadable, echoCall(2, 3, 4))
	for i, success := range []bool{true, false, true} {
		got := rs[i].Statistics()
		require.Equal(t, success, got.Success)
		require.Equal(t, uint64(given.ComputeEnd), got.ComputeEnd)
		inOrder(t, got)
	}
	got := s.instance.BatchStatistics()
	require.Equal(t, 1, got.Reports)
	require.Equal(t, 2, got.BatchSize, "requests that ran")
	inOrder(t, got)
}

func TestStatisticsOfStrangeTimes(t *testing.T) {
	for _, given := range []backend.Timing{
		{ComputeStart: 1, ComputeEnd: 2},
		{ComputeStart: 1 << 62, ComputeEnd: 1 << 62},
		{ComputeStart: 1 << 62, ComputeEnd: 1},
	} {
		s := serve(t, timed(func() backend.Timing { return given }))
		rs := s.execute(t, echoCall(1, 1, 2))
		inOrder(t, rs[0].Statistics())
		inOrder(t, s.instance.BatchStatistics())
	}
}

func TestStatisticsWhereNothingRan(t *testing.T) {
	s := serve(t, timed(func() backend.Timing { return backend.Timing{} }))
	rs := s.execute(t, echoCall(1, 1, 2))
	got := rs[0].Statistics()
	require.True(t, got.Success)
	require.Equal(t, got.ExecStart, got.ComputeStart)
	require.Equal(t, got.ExecEnd, got.ComputeEnd)
	require.Zero(t, s.instance.BatchStatistics().Reports)
}

func TestStatisticsCountLanes(t *testing.T) {
	in := newEcho()
	in.outputs = in.outputs[:1]
	in.execute = func(b backend.Batch) {
		b.Answer(0, []backend.Output{{
			Tensor: i32(1, 2), Layout: statebuffer.Layout{Pieces: 1, PieceBytes: 4}, Lanes: 2,
			Shape: single, Batched: true,
		}}, 0, 2)
		b.Finish(computed)
	}
	s := serve(t, in)
	s.execute(t, echoCall(1, 0, 0))
	require.Equal(t, 2, s.instance.BatchStatistics().BatchSize)
}

func TestClockIsTheSystemsOne(t *testing.T) {
	clock := newClock()
	for range 100 {
		before := systemClock()
		now := clock()
		after := systemClock()
		const slack = 50 * time.Microsecond
		require.GreaterOrEqual(t, now, before-slack)
		require.LessOrEqual(t, now, after+slack)
	}
}
