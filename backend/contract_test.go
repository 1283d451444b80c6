package backend

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/status"
)

// TestFakeBatch: requests that outlive their batch do so as the contract says.
func TestFakeBatch(t *testing.T) {
	b := &fakeBatch{t: t, requests: []Request{{}, {Token: 5}, {}}, answers: make([]answer, 3)}
	var reruns []rerunWith
	b.rerun = func(_ int, as rerunWith) { reruns = append(reruns, as) }
	first, second, parked := b.Hold(0), b.Hold(0), b.Park(1)
	b.Describe(0, AnswerParameters{Step: 1})
	b.Describe(2, AnswerParameters{Step: 2})
	for _, req := range []int{0, 2} {
		b.Answer(req, nil, 0, 1)
	}
	b.Fail(1, status.Errorf(status.Internal, "ignored"))
	parked("note")
	first.ReleaseWith(&AnswerParameters{Step: 3}, nil)
	b.Finish(Timing{})
	require.Equal(t, []rerunWith{{note: "note", token: 5}}, reruns)
	require.Zero(t, b.answers[1].times)
	require.Nil(t, b.answers[0].parameters, "it is still held")
	require.Equal(t, &AnswerParameters{Step: 2}, b.answers[2].parameters)
	second.ReleaseWith(nil, status.Errorf(status.Unavailable, "not saved"))
	require.ErrorContains(t, b.answers[0].err, "not saved")
	require.Nil(t, b.answers[0].parameters)
}

// TestFakeRerun: a request that runs again is as it was, with a note and a token.
func TestFakeRerun(t *testing.T) {
	s := newServer(t)
	s.reruns.asks = []ask{startOf(7).saying(Parameters{Key: "key"}), startOf(8)}
	s.reruns.asks[0].rerun = &rerunWith{note: "note", token: 5}
	var seen []Request
	s.onBatch = func(b *fakeBatch) {
		b.call = func() {
			if !b.finished {
				seen = append(seen[:0], b.requests...)
			}
		}
	}
	s.rerun().ok()
	require.Equal(t, []any{"note", nil}, []any{seen[0].Note, seen[1].Note})
	require.EqualValues(t, 5, seen[0].Token)
	require.NotNil(t, seen[0].Parameters)
	require.Nil(t, seen[1].Parameters)
}
