package statestore

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A storage is where stores keep what they are given, which the tests can change
// without them.
type storage struct {
	url     string
	forget  func(t *testing.T)             // everything, as after a restart of an empty store
	corrupt func(t *testing.T, key string) // the epoch of a key
}

// eachStore runs a test over every kind of store.
func eachStore(t *testing.T, test func(t *testing.T, where storage)) {
	t.Run("file", func(t *testing.T) { test(t, newFolder(t)) })
	t.Run("valkey", func(t *testing.T) { test(t, startServer(t).storage()) })
}

// open opens a store as one server does, and closes it at the end of the test.
func (s *storage) open(t *testing.T) Store {
	t.Helper()
	store, err := Open(s.url)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

const minute = time.Minute

var key = Key("model/1", "7")

func TestNothingSaved(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		s := where.open(t)
		require.NoError(t, s.Check(t.Context()))
		require.NoError(t, s.Check(t.Context()), "again")
		epoch, steps, err := s.Owner(t.Context(), key)
		require.NoError(t, err)
		require.Zero(t, epoch)
		require.Empty(t, steps)
		values, err := s.Get(t.Context(), key)
		require.NoError(t, err)
		require.Empty(t, values)
		before := uint64(time.Now().Add(-minute).UnixMicro())
		epoch, value, err := s.Take(t.Context(), key, AnyStep, minute)
		require.NoError(t, err)
		require.Nil(t, value)
		require.Greater(t, epoch, before, "epochs come from the clock")
		require.Equal(t, epoch, owner(t, s, key), "a taken sequence has an owner even if nothing was saved")
	})
}

func owner(t *testing.T, s Store, key string) uint64 {
	t.Helper()
	epoch, _, err := s.Owner(t.Context(), key)
	require.NoError(t, err)
	return epoch
}

func begin(t *testing.T, s Store, key string) uint64 {
	t.Helper()
	epoch, err := s.Begin(t.Context(), key, 0, minute)
	require.NoError(t, err)
	return epoch
}

func take(t *testing.T, s Store, key string) (uint64, string) {
	t.Helper()
	epoch, value, err := s.Take(t.Context(), key, AnyStep, minute)
	require.NoError(t, err)
	return epoch, string(value)
}

func save(t *testing.T, s Store, key string, epoch uint64, value string) {
	t.Helper()
	require.NoError(t, s.Save(t.Context(), key, epoch, []byte(value), minute))
}

func saved(t *testing.T, s Store, key string) string {
	t.Helper()
	values, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	if len(values) == 0 {
		return ""
	}
	return string(values[0])
}

// requireFenced: the error names both epochs.
func requireFenced(t *testing.T, err error, mine, owner uint64) {
	t.Helper()
	var fenced *FencedError
	require.ErrorAs(t, err, &fenced)
	require.Equal(t, FencedError{mine, owner}, *fenced)
	require.ErrorContains(t, err, "another server took over")
	require.ErrorContains(t, err, key)
}

// TestBeginLate: a server that begins a sequence late does not take it from one that had it since.
func TestBeginLate(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		a, b := where.open(t), where.open(t)
		first := begin(t, a, key)
		time.Sleep(10 * time.Millisecond)
		second, _ := take(t, b, key)
		require.Greater(t, second, first)
		save(t, b, key, second, "step 1")
		time.Sleep(10 * time.Millisecond)
		_, err := a.Begin(t.Context(), key, time.Second, minute)
		var fenced *FencedError
		require.ErrorAs(t, err, &fenced)
		require.Equal(t, second, fenced.Owner)
		require.Equal(t, "step 1", saved(t, b, key))
		save(t, b, key, second, "step 2")
		require.Greater(t, begin(t, a, key), second, "a sequence that begins now replaces it")
		require.Empty(t, saved(t, b, key))
		_, err = a.Begin(t.Context(), Key("model/1", "8"), time.Hour, minute)
		require.NoError(t, err, "no one else had it")
	})
}

// TestTakeOver is the life of a sequence on two servers, the first of which comes back.
func TestTakeOver(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		a, b := where.open(t), where.open(t)
		first := begin(t, a, key)
		save(t, a, key, first, "step 1")
		save(t, a, key, first, "step 2")
		require.Equal(t, "step 2", saved(t, b, key))
		require.Equal(t, first, owner(t, b, key))

		second, value := take(t, b, key)
		require.Equal(t, "step 2", value)
		require.Greater(t, second, first)
		requireFenced(t, a.Save(t.Context(), key, first, []byte("stale"), minute), first, second)
		requireFenced(t, a.Drop(t.Context(), key, first), first, second)
		require.Equal(t, "step 2", saved(t, a, key))
		save(t, b, key, second, "step 3")

		third, value := take(t, a, key)
		require.Equal(t, "step 3", value)
		requireFenced(t, b.Save(t.Context(), key, second, nil, minute), second, third)
		fourth := begin(t, b, key)
		require.Greater(t, fourth, third)
		require.Empty(t, saved(t, a, key), "a START deletes what was saved")
		requireFenced(t, a.Save(t.Context(), key, third, []byte("stale"), minute), third, fourth)
		fifth, value := take(t, a, key)
		require.Empty(t, value)
		save(t, a, key, fifth, "step 1")
		require.Equal(t, "step 1", saved(t, b, key))
	})
}

func TestOtherKeysAreNotTouched(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		s := where.open(t)
		for i := range 20 {
			other := Key("m", fmt.Sprint(i))
			save(t, s, other, begin(t, s, other), fmt.Sprint("state of ", i))
		}
		require.NoError(t, s.Drop(t.Context(), Key("m", "3"), owner(t, s, Key("m", "3"))))
		begin(t, s, Key("m", "4"))
		take(t, s, Key("m", "5"))
		for i := range 20 {
			want := fmt.Sprint("state of ", i)
			if i == 3 || i == 4 {
				want = ""
			}
			require.Equal(t, want, saved(t, s, Key("m", fmt.Sprint(i))))
		}
	})
}

// TestDropKeepsTheEpoch: a server that was stopped cannot save a sequence that ended.
func TestDropKeepsTheEpoch(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		zombie, s := where.open(t), where.open(t)
		stale := begin(t, zombie, key)
		save(t, zombie, key, stale, "old")
		epoch, _ := take(t, s, key)
		require.NoError(t, s.Drop(t.Context(), key, epoch))
		require.Empty(t, saved(t, s, key))
		requireFenced(t, zombie.Save(t.Context(), key, stale, []byte("stale"), minute), stale, epoch)
		require.NoError(t, s.Drop(t.Context(), key, epoch), "again")
		_, value := take(t, zombie, key)
		require.Empty(t, value)
		// Also where the store has forgotten the sequence meanwhile.
		epoch = begin(t, s, key)
		where.forget(t)
		require.NoError(t, s.Drop(t.Context(), key, epoch))
		requireFenced(t, zombie.Save(t.Context(), key, stale, []byte("stale"), minute), stale, epoch)
	})
}

// TestEmptiedStore: the owner saves again, and then older servers are refused; epochs
// go on.
func TestEmptiedStore(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		zombie, s := where.open(t), where.open(t)
		stale := begin(t, zombie, key)
		epoch, _ := take(t, s, key)
		where.forget(t)
		require.Zero(t, owner(t, s, key))
		save(t, zombie, key, stale, "stale") // no one can know
		save(t, s, key, epoch, "right")
		requireFenced(t, zombie.Save(t.Context(), key, stale, []byte("stale"), minute), stale, epoch)
		require.Equal(t, "right", saved(t, zombie, key))
		where.forget(t)
		require.Greater(t, begin(t, s, key), epoch)
		where.forget(t)
		later, _ := take(t, s, key)
		require.Greater(t, later, epoch)
	})
}

func TestExpiry(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		s := where.open(t)
		const ttl = 50 * time.Millisecond
		gone := func() bool { return owner(t, s, key) == 0 }
		for name, use := range map[string]func() (uint64, error){
			"begin": func() (uint64, error) { return s.Begin(t.Context(), key, 0, ttl) },
			"take": func() (uint64, error) {
				epoch, _, err := s.Take(t.Context(), key, AnyStep, ttl)
				return epoch, err
			},
			"save": func() (uint64, error) {
				epoch := begin(t, s, key)
				return epoch, s.Save(t.Context(), key, epoch, []byte("x"), ttl)
			},
			"drop": func() (uint64, error) {
				epoch, _ := take(t, s, key)
				require.NoError(t, s.Save(t.Context(), key, epoch, []byte("x"), ttl))
				return epoch, s.Drop(t.Context(), key, epoch)
			},
		} {
			epoch, err := use()
			require.NoError(t, err, name)
			require.Eventually(t, gone, 10*time.Second, 5*time.Millisecond, name)
			require.Empty(t, saved(t, s, key))
			require.Empty(t, keys(t, s, ""), name)
			require.Greater(t, begin(t, s, key), epoch, name)
		}
		// Each of them gives the key a new TTL, also none.
		epoch, err := s.Begin(t.Context(), key, 0, ttl)
		require.NoError(t, err)
		require.NoError(t, s.Save(t.Context(), key, epoch, []byte("kept"), 0))
		time.Sleep(2 * ttl)
		require.Equal(t, "kept", saved(t, s, key))
		_, err = s.Begin(t.Context(), key, 0, time.Nanosecond)
		require.NoError(t, err, "it is rounded up where the store counts in milliseconds")
		require.Eventually(t, gone, 10*time.Second, 5*time.Millisecond)
	})
}

func TestKeysAndValuesOfAnyBytes(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		s := where.open(t)
		large := bytes.Repeat([]byte("\x00\xff\r\n$-1"), 300_000)
		want := map[string]bool{}
		for i, id := range []string{"7", `"a*[b]?\\"`, "@../../etc/passwd", "@\x00\xff\n", "@" + string(bytes.Repeat([]byte("k"), 1000)), "@ü"} {
			key := Key("m/1", id)
			want[key] = true
			value := large[:len(large)>>i]
			require.NoError(t, s.Save(t.Context(), key, begin(t, s, key), value, minute))
			_, got, err := s.Take(t.Context(), key, AnyStep, minute)
			require.NoError(t, err)
			require.True(t, bytes.Equal(value, got))
			got[0]++ // it is ours
			again, err := s.Get(t.Context(), key)
			require.NoError(t, err)
			require.True(t, bytes.Equal(value, again[0]))
		}
		begin(t, s, Key("m/10", "7"))
		begin(t, s, Key("m*", "7"))
		require.Equal(t, want, keys(t, s, Key("m/1", "")))
		require.Len(t, keys(t, s, ""), len(want)+2)
		require.Equal(t, map[string]bool{Key("m*", "7"): true}, keys(t, s, Key("m*", "")))
		for key, err := range s.Keys(t.Context(), "") {
			require.NoError(t, err)
			require.NotEmpty(t, key)
			break // the rest is not needed
		}
	})
}

// listError returns the error that a list of keys ends with.
func listError(keys iter.Seq2[string, error]) (last error) {
	for _, err := range keys {
		last = err
	}
	return last
}

func keys(t *testing.T, s Store, prefix string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for key, err := range s.Keys(t.Context(), prefix) {
		require.NoError(t, err)
		found[key] = true
	}
	return found
}

// TestBorrowedValue: what is saved is what the value was during the call.
func TestBorrowedValue(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		s := where.open(t)
		epoch := begin(t, s, key)
		value := make([]byte, 200_000)
		for i := range 20 {
			for j := range value {
				value[j] = byte(i)
			}
			require.NoError(t, s.Save(t.Context(), key, epoch, value, minute))
			clear(value)
			require.Equal(t, bytes.Repeat([]byte{byte(i)}, len(value)), []byte(saved(t, s, key)))
		}
	})
}

// TestDamagedEpoch: what is not ours is not taken for a state.
func TestDamagedEpoch(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		s := where.open(t)
		save(t, s, key, begin(t, s, key), "right")
		where.corrupt(t, key)
		_, value, err := s.Take(t.Context(), key, AnyStep, minute)
		require.Error(t, err)
		require.Nil(t, value)
		_, _, err = s.Owner(t.Context(), key)
		require.Error(t, err)
	})
}

func TestContextEnds(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		s := where.open(t)
		epoch := begin(t, s, key)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Begin(ctx, key, 0, minute)
		require.ErrorIs(t, err, context.Canceled)
		_, _, err = s.Take(ctx, key, AnyStep, minute)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, s.Save(ctx, key, epoch, nil, minute), context.Canceled)
		require.ErrorIs(t, s.Drop(ctx, key, epoch), context.Canceled)
		require.ErrorIs(t, s.Check(ctx), context.Canceled)
		require.ErrorIs(t, listError(s.Keys(ctx, "")), context.Canceled)
		require.Equal(t, epoch, owner(t, s, key))
	})
}

func TestErrorsNameTheStore(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		s := where.open(t)
		err := s.Save(t.Context(), key, math.MaxUint32, nil, minute)
		require.NoError(t, err)
		err = s.Save(t.Context(), key, 1, nil, minute)
		require.ErrorContains(t, err, fmt.Sprintf("save %q in the state store %s: ", key, where.url))
	})
}
