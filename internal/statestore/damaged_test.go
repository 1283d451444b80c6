package statestore

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEvictedValue counts as never saved.
func TestEvictedValue(t *testing.T) {
	server := startServer(t)
	s := openURL(t, server.url())
	epoch := begin(t, s, key)
	saveSteps(t, s, epoch, minute, 10, 20)
	evict := func(step string) {
		name, err := server.do(t, "HGET", key, statePrefix+step).ToString()
		require.NoError(t, err)
		server.must(t, "DEL", name)
	}
	evict("20")
	requireSteps(t, s, 10)
	epoch, step := takeStep(t, s, AnyStep)
	require.EqualValues(t, 10, step)
	evict("10")
	_, value := take(t, s, key)
	require.Empty(t, value)
	require.Error(t, s.Save(t.Context(), key, epoch, nil, minute))
}

// TestEvictedValueBefore: what is gone is not kept as the value before, in the place of one that is there.
func TestEvictedValueBefore(t *testing.T) {
	server := startServer(t)
	s := openURL(t, server.url())
	epoch := begin(t, s, key)
	saveSteps(t, s, epoch, minute, 10, 20)
	name, err := server.do(t, "HGET", key, statePrefix+"20").ToString()
	require.NoError(t, err)
	server.must(t, "DEL", name)
	saveSteps(t, s, epoch, minute, 30)
	requireSteps(t, s, 30, 10)
}

// TestFullServerThatEvicts makes room by what expires first, and never by what is being saved.
func TestFullServerThatEvicts(t *testing.T) {
	server := startServer(t, "--maxmemory-policy", "volatile-ttl", "--maxmemory", "6mb")
	s := openURL(t, server.url())
	for i := range 200 {
		key := Key("m", fmt.Sprint(i))
		require.NoError(t, s.Save(t.Context(), key, begin(t, s, key), make([]byte, 100_000), time.Hour))
		require.NotEmpty(t, saved(t, s, key))
	}
	require.Empty(t, saved(t, s, Key("m", "0")))
}

// TestDamagedValueBefore is not there.
func TestDamagedValueBefore(t *testing.T) {
	where := newFolder(t)
	s := where.open(t)
	epoch := begin(t, s, key)
	for _, size := range []int64{0, 20, 140} {
		saveSteps(t, s, epoch, minute, 10, 20)
		require.NoError(t, os.Truncate(where.fileOf(key)+beforeSuffix, size))
		requireSteps(t, s, 20)
		epoch, _ = takeStep(t, s, 15)
		requireSteps(t, s, 20)
	}
}

// TestDamagedNewest counts as never saved, if there is the one before.
func TestDamagedNewest(t *testing.T) {
	for _, size := range []int64{0, 20, 140} {
		for _, atMost := range []uint64{AnyStep, 15, 10, 5} {
			where := newFolder(t)
			s := where.open(t)
			epoch := begin(t, s, key)
			saveSteps(t, s, epoch, minute, 10, 20)
			require.NoError(t, os.Truncate(where.fileOf(key), size))
			if _, steps, err := s.Owner(t.Context(), key); size > 20 {
				require.NoError(t, err)
				require.Equal(t, []uint64{10}, steps)
			} else {
				require.ErrorIs(t, err, ErrDamaged)
			}
			later, step := takeStep(t, s, atMost)
			require.EqualValues(t, 10, step)
			require.Greater(t, later, epoch)
			requireSteps(t, s, 10)
			requireFenced(t, s.Save(t.Context(), key, epoch, []byte("stale"), minute), epoch, later)
		}
	}
}

// TestDamagedAfterTheEnd: what stays for a while is not taken for longer.
func TestDamagedAfterTheEnd(t *testing.T) {
	where := newFolder(t)
	s := where.open(t)
	epoch := begin(t, s, key)
	saveSteps(t, s, epoch, minute, 10, 20)
	require.NoError(t, s.End(t.Context(), key, epoch, 21))
	before := where.fileOf(key) + beforeSuffix
	expireNow(t, before)
	require.NoError(t, os.Truncate(where.fileOf(key), 20))
	_, _, err := s.Take(t.Context(), key, AnyStep, minute)
	require.ErrorIs(t, err, ErrDamaged)
}
