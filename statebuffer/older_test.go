package statebuffer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// token is a sequence of a number that others may have at the same time.
func token(n, token uint64) Key { return Key{Number: n, Token: token} }

// TestDisplaced: a token is one sequence's at a time.
func TestDisplaced(t *testing.T) {
	s := newTestStore(t, Options{Sizing: Sizing{Initial: 2, MaxChunks: 1}, Limits: Limits{Tombstones: 4}})
	begin(t, s, token(1, 1), time.Second)
	begin(t, s, token(2, 2), time.Second)
	begin(t, s, token(2, 2), time.Second)
	begin(t, s, token(3, 1), time.Second)
	_, err := s.Continue(token(1, 1), 3*time.Second)
	require.ErrorContains(t, err, "its batch slot was given")
	require.EqualValues(t, 1, s.Counters().Displaced)
	s.End(token(2, 2))
	begin(t, s, token(5, 2), time.Second)
	require.EqualValues(t, 1, s.Counters().Displaced, "what END left belongs to none")
	s.Refuse(token(6, 1), 2*time.Second)
	require.EqualValues(t, 2, s.Counters().Displaced, "a START that fails is one all the same")
	require.Equal(t, 1, s.Usage().Live)
}

// TestOneIDTwice: sequences of one ID with tokens of their own are as those of
// different IDs, whichever ends first.
func TestOneIDTwice(t *testing.T) {
	for _, k := range []Key{{Number: 7}, {Text: "seven"}} {
		s := newTestStore(t, Options{Sizing: Sizing{Initial: 3, MaxChunks: 1}, Limits: Limits{Tombstones: 4}})
		first, second := Key{k.Number, k.Text, 1}, Key{k.Number, k.Text, 2}
		a, b := begin(t, s, first, 1), begin(t, s, second, 2)
		require.Equal(t, Counters{Started: 1, Restarted: 1}, s.Counters())
		require.NotSame(t, a, b)
		for _, order := range [][]Key{{first, second}, {second, first}} {
			a, b = begin(t, s, order[0], 3), begin(t, s, order[1], 4)
			require.Same(t, a, s.Touch(order[0], 5))
			require.Same(t, b, s.Touch(order[1], 5))
			require.Nil(t, s.Touch(Key{k.Number, k.Text, 3}, 5), "what never began")
			require.Nil(t, s.Touch(Key{8, "", 2}, 5), "another ID")
			s.End(order[0])
			require.Nil(t, s.Touch(order[0], 6))
			require.Same(t, b, s.Touch(order[1], 6))
			s.End(order[1])
			require.Zero(t, s.Usage().Live)
			require.Empty(t, len(s.byNumber)+len(s.byText)+len(s.byToken))
		}
	}
}

// TestOlderSequenceMakesRoom: whether a sequence whose ID began again is over, only
// the server knows. If its slot is needed it is evicted first, under either policy.
func TestOlderSequenceMakesRoom(t *testing.T) {
	for _, full := range []Policy{Reject, EvictLRU} {
		s := newTestStore(t, Options{Sizing: Sizing{Initial: 3, MaxChunks: 1}, Limits: Limits{Tombstones: 4, Full: full}})
		begin(t, s, token(1, 1), 1)
		begin(t, s, token(2, 2), 2)
		begin(t, s, token(2, 3), 3)
		require.Equal(t, 3, s.Usage().Live)
		begin(t, s, token(4, 4), 4)
		require.NotNil(t, s.Touch(token(1, 1), 5), "used less recently, but by no one else")
		require.NotNil(t, s.Touch(token(2, 3), 5))
		_, err := s.Continue(token(2, 2), 5)
		require.ErrorContains(t, err, "its ID began again")
		begin(t, s, token(2, 2), 6)
		require.NotNil(t, s.Touch(token(2, 2), 7), "what is remembered of a key does not stay in its way")
	}
}

// TestOlderOnesGoBeforeAnyStartIsRefused: beginning an ID again takes no slot more than it did, when
// slots are short, whatever the older ones do at that moment.
func TestOlderOnesGoBeforeAnyStartIsRefused(t *testing.T) {
	full := func(full Policy) *Store {
		s := newTestStore(t, Options{Sizing: Sizing{Initial: 4, MaxChunks: 1}, Limits: Limits{Tombstones: 4, Full: full}})
		for n := range uint64(3) {
			begin(t, s, number(n+1), time.Duration(n+1))
		}
		_, err := s.BeginSettingAside(number(1), 101, 4)
		require.NoError(t, err)
		return s
	}
	for _, policy := range []Policy{Reject, EvictLRU} {
		s := full(policy) // another older one is in use
		older := s.Touch(token(1, 101), 5)
		_, err := s.BeginSettingAside(number(2), 102, 5)
		require.NoError(t, err)
		require.Same(t, older, s.Live(token(1, 101)))
		require.NotNil(t, s.Live(number(3)), "it is no older one")
		require.Nil(t, s.Live(token(2, 102)))

		s = full(policy) // and so is the one that begins again
		s.Touch(token(1, 101), 5)
		s.Touch(number(2), 5)
		_, err = s.BeginSettingAside(number(2), 102, 5)
		require.NoError(t, err)
		require.NotNil(t, s.Live(token(1, 101)))
		require.NotNil(t, s.Live(number(3)))
	}
}

// TestOlderOnesAreNotRememberedInsteadOfOthers: an ID that begins again and again leaves the
// others what is remembered of them.
func TestOlderOnesAreNotRememberedInsteadOfOthers(t *testing.T) {
	s := newTestStore(t, Options{Sizing: Sizing{Initial: 1, MaxChunks: 1}, Limits: Limits{Tombstones: 2, Full: EvictLRU}})
	begin(t, s, number(1), 1)
	begin(t, s, number(2), 2)
	for n := range time.Duration(5) {
		_, err := s.BeginSettingAside(number(2), uint64(100+n), 3+n) // the older one makes room
		require.NoError(t, err)
	}
	s.Refuse(number(2), 9)
	for n := range time.Duration(5) {
		s.SetAside(number(2), uint64(200+n), 10+n)
		s.Refuse(number(2), 10+n)
	}
	_, err := s.Continue(number(1), 20)
	require.ErrorContains(t, err, "its state was evicted")
	_, err = s.Continue(token(2, 204), 20)
	require.ErrorContains(t, err, "its START failed")
	_, err = s.Continue(token(2, 100), 20)
	require.ErrorContains(t, err, "its START failed", "forgotten, so that the latest one counts")
	s.Forget(token(2, 204))
	require.Equal(t, 1, s.olderTombstones.len)
	require.Len(t, s.byToken, 1)
}
