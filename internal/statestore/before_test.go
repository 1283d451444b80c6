package statestore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// saveSteps saves a value with each of these numbers of steps.
func saveSteps(t *testing.T, s Store, epoch uint64, ttl time.Duration, steps ...uint64) {
	t.Helper()
	for _, step := range steps {
		var w Writer
		require.NoError(t, w.Begin([]uint64{step}, nil))
		require.NoError(t, s.Save(t.Context(), key, epoch, w.Seal(Head{Epoch: epoch, Step: step}), ttl))
	}
}

// requireSteps: the values have these numbers of steps, the newest first, whoever asks.
func requireSteps(t *testing.T, s Store, want ...uint64) {
	t.Helper()
	_, steps, err := s.Owner(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, want, steps)
	values, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, values, len(want))
	for i, value := range values {
		record, err := Parse(value)
		require.NoError(t, err)
		require.Equal(t, want[i], record.Step)
	}
}

// takeStep takes the key, and returns the number of steps of the value.
func takeStep(t *testing.T, s Store, atMost uint64) (epoch, step uint64) {
	t.Helper()
	epoch, value, err := s.Take(t.Context(), key, atMost, minute)
	require.NoError(t, err)
	record, err := Parse(value)
	require.NoError(t, err)
	return epoch, record.Step
}

// TestTheValueBefore can be taken by a client that never got the answer to a step that was saved.
func TestTheValueBefore(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		for _, c := range []struct {
			atMost, want uint64
			left         []uint64
		}{
			{AnyStep, 30, []uint64{30, 20}},
			{30, 30, []uint64{30, 20}},
			{29, 20, []uint64{20}},
			{20, 20, []uint64{20}},
			{19, 30, []uint64{30, 20}}, // all have more
		} {
			a, b := where.open(t), where.open(t)
			first := begin(t, a, key)
			saveSteps(t, a, first, minute, 10, 20, 30)
			requireSteps(t, b, 30, 20)
			second, step := takeStep(t, b, c.atMost)
			require.Equal(t, c.want, step, "at most %d", c.atMost)
			requireSteps(t, b, c.left...)
			requireFenced(t, a.Save(t.Context(), key, first, []byte("stale"), minute), first, second)
			requireFenced(t, a.Drop(t.Context(), key, first), first, second)
			requireSteps(t, b, c.left...)
			saveSteps(t, b, second, minute, 35)
			requireSteps(t, b, 35, c.left[0])
			require.NoError(t, b.Drop(t.Context(), key, second))
			requireSteps(t, b)
			_, value := take(t, b, key)
			require.Empty(t, value)
		}
	})
}

// TestBeginDeletesTheValueBefore, too.
func TestBeginDeletesTheValueBefore(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		s := where.open(t)
		saveSteps(t, s, begin(t, s, key), minute, 10, 20)
		epoch := begin(t, s, key)
		requireSteps(t, s)
		saveSteps(t, s, epoch, minute, 5)
		requireSteps(t, s, 5)
	})
}

// TestStepsThatAreSavedAgain are not those of a value before.
func TestStepsThatAreSavedAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		s := where.open(t)
		epoch := begin(t, s, key)
		saveSteps(t, s, epoch, minute, 10, 20, 20)
		requireSteps(t, s, 20, 10)
		saveSteps(t, s, epoch, minute, 15)
		requireSteps(t, s, 15, 10)
		saveSteps(t, s, epoch, minute, 10)
		requireSteps(t, s, 10)
		saveSteps(t, s, epoch, minute, 9, 11)
		requireSteps(t, s, 11, 9)
	})
}

// TestExpiryOfTheValueBefore is that of the key.
func TestExpiryOfTheValueBefore(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		s := where.open(t)
		const ttl = 100 * time.Millisecond
		epoch := begin(t, s, key)
		saveSteps(t, s, epoch, ttl, 10)
		saveSteps(t, s, epoch, 0, 20)
		time.Sleep(2 * ttl)
		requireSteps(t, s, 20, 10)
		saveSteps(t, s, epoch, ttl, 30)
		require.Eventually(t, func() bool { return owner(t, s, key) == 0 }, 10*time.Second, 5*time.Millisecond)
		requireSteps(t, s)
		saveSteps(t, s, begin(t, s, key), minute, 40)
		requireSteps(t, s, 40)
	})
}

// TestLostAnswerToEnd: for a while after its END, a sequence goes on for those who have no answer to the END, and for no one
// else.
func TestLostAnswerToEnd(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		for _, c := range []struct {
			ended, atMost uint64
			want          []uint64
		}{
			{31, 30, []uint64{30}},
			{32, 31, []uint64{30}}, // the step before the END is not saved
			{32, 30, []uint64{30}},
			{31, 31, nil}, // the client has the answer
			{31, 32, nil},
			{31, AnyStep, nil},
			{31, 29, nil},
			{30, 29, []uint64{20}}, // the END was made again
			{30, 30, nil},
			{0, AnyStep, nil},
		} {
			a, b := where.open(t), where.open(t)
			first := begin(t, a, key)
			saveSteps(t, a, first, minute, 10, 20, 30)
			for range 2 { // a call that ran out of time is made again
				require.NoError(t, a.End(t.Context(), key, first, c.ended))
				requireSteps(t, b)
				require.Equal(t, first, owner(t, b, key))
			}
			second, _, err := b.Take(t.Context(), key, c.atMost, minute)
			require.NoError(t, err)
			requireSteps(t, b, c.want...)
			requireFenced(t, a.End(t.Context(), key, first, c.ended), first, second)
			requireSteps(t, b, c.want...)
			saveSteps(t, b, second, minute, 33)
			requireSteps(t, b, append([]uint64{33}, c.want...)...)
		}
		s := where.open(t)
		for _, next := range []func(){
			func() { begin(t, s, key) },
			func() { take(t, s, key) },
			func() { require.NoError(t, s.Drop(t.Context(), key, owner(t, s, key))) },
		} {
			epoch := begin(t, s, key)
			saveSteps(t, s, epoch, minute, 10)
			require.NoError(t, s.End(t.Context(), key, epoch, 11))
			next()
			_, value, err := s.Take(t.Context(), key, 10, minute)
			require.NoError(t, err)
			require.Empty(t, value)
		}
	})
}

// TestTakeSaved: where nothing is saved, the owner goes on, and what an END has left stays.
func TestTakeSaved(t *testing.T) {
	eachStore(t, func(t *testing.T, where storage) {
		a, b := where.open(t), where.open(t)
		none := func(atMost uint64) {
			t.Helper()
			before := owner(t, b, key)
			epoch, value, err := b.TakeSaved(t.Context(), key, atMost, minute)
			require.NoError(t, err)
			require.Zero(t, epoch)
			require.Nil(t, value)
			require.Equal(t, before, owner(t, b, key))
		}
		none(AnyStep)
		require.Empty(t, keys(t, a, ""))
		first := begin(t, a, key)
		none(AnyStep)
		none(5)
		saveSteps(t, a, first, minute, 10, 20)
		for _, c := range []struct{ atMost, want uint64 }{{AnyStep, 20}, {15, 10}, {5, 10}} {
			epoch, value, err := b.TakeSaved(t.Context(), key, c.atMost, minute)
			require.NoError(t, err)
			require.Equal(t, c.want, stepOf(value))
			requireFenced(t, a.Save(t.Context(), key, first, value, minute), first, epoch)
			first = epoch
		}
		saveSteps(t, a, first, minute, 20)
		require.NoError(t, a.End(t.Context(), key, first, 21))
		none(AnyStep)
		none(21)
		none(15)
		_, value, err := b.TakeSaved(t.Context(), key, 20, minute)
		require.NoError(t, err)
		require.EqualValues(t, 20, stepOf(value))
	})
}

// TestNoValueIsLeftOver on the server by anything that a store does, or that comes too late.
func TestNoValueIsLeftOver(t *testing.T) {
	server := startServer(t)
	s := openURL(t, server.url())
	requireValues := func(want int64) {
		t.Helper()
		names, err := server.do(t, "KEYS", valuePrefix+"*").AsStrSlice()
		require.NoError(t, err)
		require.Len(t, names, int(want))
		for _, name := range names {
			left, err := server.do(t, "PTTL", name).AsInt64()
			require.NoError(t, err)
			require.Positive(t, left)
		}
	}
	first := begin(t, s, key)
	saveSteps(t, s, first, minute, 10, 20, 30)
	requireValues(2)
	epoch, _ := takeStep(t, s, 25)
	requireValues(1)
	require.Error(t, s.Save(t.Context(), key, first, []byte("stale"), minute))
	requireValues(1)
	saveSteps(t, s, epoch, minute, 30)
	require.Len(t, keys(t, s, ""), 1, "values are no keys of sequences")
	require.NoError(t, s.Drop(t.Context(), key, epoch))
	requireValues(0)
	saveSteps(t, s, epoch, minute, 31, 32)
	epoch = begin(t, s, key)
	requireValues(0)
	saveSteps(t, s, epoch, 0, 1, 2)
	require.NoError(t, s.End(t.Context(), key, epoch, 3))
	requireValues(1)
	_, _, err := s.Take(t.Context(), key, AnyStep, 0)
	require.NoError(t, err)
	requireValues(0)
}

// TestRefusedSave: no value stays that the hash does not name.
func TestRefusedSave(t *testing.T) {
	server := startServer(t)
	s := openURL(t, server.url())
	server.must(t, "SET", key, "of someone else")
	require.ErrorContains(t, s.Save(t.Context(), key, 1, []byte("value"), minute), "WRONGTYPE")
	names, err := server.do(t, "KEYS", valuePrefix+"*").AsStrSlice()
	require.NoError(t, err)
	require.Empty(t, names)
}

// TestKilledWhileItSaved: a server that is killed between the two renames leaves what was saved.
func TestKilledWhileItSaved(t *testing.T) {
	where := newFolder(t)
	s := where.open(t)
	epoch := begin(t, s, key)
	saveSteps(t, s, epoch, minute, 10, 20)
	file := where.fileOf(key)
	killed := func() { require.NoError(t, os.Rename(file, file+beforeSuffix)) }
	killed()
	require.Len(t, keys(t, s, ""), 1)
	require.Equal(t, epoch, owner(t, s, key))
	requireSteps(t, s, 20)
	killed()
	saveSteps(t, s, epoch, minute, 30)
	requireSteps(t, s, 30, 20)
	killed()
	_, step := takeStep(t, s, AnyStep)
	require.EqualValues(t, 30, step)
	killed()
	begin(t, s, key)
	requireSteps(t, s)
}

// expireNow has the value in a file expire.
func expireNow(t *testing.T, file string) {
	e := entry{path: file}
	require.NoError(t, e.openAs(file))
	defer e.close()
	e.head.expires = time.Now()
	_, err := e.file.WriteAt(e.head.bytes(), 0)
	require.NoError(t, err)
}

// TestSweepOfTheValueBefore: it goes with its key, and not before.
func TestSweepOfTheValueBefore(t *testing.T) {
	where := newFolder(t)
	s := where.open(t).(*folderStore)
	epoch := begin(t, s, key)
	saveSteps(t, s, epoch, time.Millisecond, 10)
	saveSteps(t, s, epoch, minute, 20)
	saveSteps(t, s, epoch, minute, 30)
	sweep := func() {
		time.Sleep(5 * time.Millisecond)
		for shard := range shards {
			s.sweep(t.Context(), shard)
		}
	}
	require.NoError(t, os.Rename(where.fileOf(key)+beforeSuffix, where.fileOf(key)))
	saveSteps(t, s, epoch, minute, 25, 40)
	expireNow(t, where.fileOf(key)+beforeSuffix) // the one before has an expiry of its own, which is over
	sweep()
	requireSteps(t, s, 40, 25)
	require.NoError(t, s.End(t.Context(), key, epoch, 41))
	ended := where.fileOf(key) + beforeSuffix
	sweep()
	require.FileExists(t, ended)
	expireNow(t, ended)
	sweep()
	require.NoFileExists(t, ended)
	require.Equal(t, epoch, owner(t, s, key), "it stays for longer")
	saveSteps(t, s, epoch, time.Millisecond, 50)
	sweep()
	left, err := filepath.Glob(filepath.Dir(where.fileOf(key)) + "/*")
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.True(t, strings.HasSuffix(left[0], lockName))
}
