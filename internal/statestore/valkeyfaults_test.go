package statestore

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestServerIsDownAtFirst(t *testing.T) {
	server := newServer(t)
	var s Store
	requireQuick(t, func() { s = openURL(t, server.url()) })
	requireQuick(t, func() { requireTemporary(t, s.Check(t.Context())) })
	_, err := s.Begin(t.Context(), key, 0, minute)
	requireTemporary(t, err)
	server.start(t)
	require.NoError(t, s.Check(t.Context()))
	save(t, s, key, begin(t, s, key), "x")
	// It is started again, empty.
	epoch := owner(t, s, key)
	server.stop()
	requireQuick(t, func() { requireTemporary(t, s.Save(t.Context(), key, epoch, nil, minute)) })
	server.start(t)
	require.Eventually(t, func() bool { return s.Save(t.Context(), key, epoch, []byte("y"), minute) == nil }, 5*time.Second, 5*time.Millisecond)
	require.Equal(t, "y", saved(t, s, key))
	require.Equal(t, epoch, owner(t, s, key))
}

func TestNothingListens(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	s := openURL(t, "valkey://"+address)
	requireQuick(t, func() {
		err = s.Check(t.Context())
		requireTemporary(t, err)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.ErrorContains(t, err, "valkey://"+address)
	})
}

// TestHungServer accepts connections and never answers.
func TestHungServer(t *testing.T) {
	s := openURL(t, "valkey://"+fakeServer(t, nil))
	requireQuick(t, func() {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				err := s.Save(within(t, 50*time.Millisecond), key, 1, make([]byte, 1<<20), minute)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		require.ErrorIs(t, s.Check(ctx), context.Canceled)
	})
	requireQuick(t, s.Close)
}

// TestStoppedServer answers what it was asked before it was stopped only after it
// continues.
func TestStoppedServer(t *testing.T) {
	server := startServer(t)
	s := openURL(t, server.url())
	epoch := begin(t, s, key)
	save(t, s, key, epoch, "before")
	server.signal(t, syscall.SIGSTOP)
	requireQuick(t, func() {
		for range 5 {
			err := s.Save(within(t, 30*time.Millisecond), key, epoch, []byte("late"), minute)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			_, _, err = s.Take(within(t, 10*time.Millisecond), Key("m", "other"), AnyStep, minute)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
	})
	server.signal(t, syscall.SIGCONT)
	save(t, s, key, epoch, "after")
	for range 20 {
		require.Equal(t, "after", saved(t, s, key))
		time.Sleep(time.Millisecond)
	}
	requireQuick(t, func() {
		server.signal(t, syscall.SIGSTOP)
		closed := make(chan error, 1)
		go func() { closed <- s.Save(t.Context(), key, epoch, nil, minute) }()
		time.Sleep(20 * time.Millisecond)
		s.Close()
		require.Error(t, <-closed)
		require.Error(t, s.Check(t.Context()))
	})
}

// TestSilentConnection is given up, and a new one is made.
func TestSilentConnection(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until a silent connection is given up")
	}
	server := startServer(t)
	p := startProxy(t, server.socket, 0, nil)
	s := openURL(t, "valkey://"+p.address())
	epoch := begin(t, s, key)
	p.hold(true)
	require.Error(t, s.Save(within(t, 20*time.Millisecond), key, epoch, []byte("late"), minute))
	p.mu.Lock()
	held := p.held
	p.held = nil // for what comes from now on; pieces that wait go on waiting
	p.mu.Unlock()
	defer close(held)
	require.Eventually(t, func() bool {
		return s.Save(within(t, time.Second), key, epoch, []byte("new"), minute) == nil
	}, 3*silenceTimeout, 10*time.Millisecond)
	require.Eventually(t, func() bool { // of the other connection too
		values, err := s.Get(within(t, time.Second), key)
		require.True(t, err != nil || string(values[0]) == "new")
		return err == nil
	}, 3*silenceTimeout, 10*time.Millisecond)
}

// TestLateCommands are those of calls that have ended, executed when a connection comes
// back to life.
func TestLateCommands(t *testing.T) {
	server := startServer(t)
	s := openURL(t, server.url()).(*valkeyStore)
	late := func(p *proxy) *valkeyStore {
		s := openURL(t, "valkey://"+p.address()).(*valkeyStore)
		require.NoError(t, s.Check(t.Context()))
		return s
	}
	for name, c := range map[string]struct {
		before func(stuck Store, epoch uint64) // is not answered
		after  func(epoch uint64)              // over another connection
		want   string
	}{
		"a save after a save": {
			func(stuck Store, epoch uint64) {
				require.Error(t, stuck.Save(within(t, 30*time.Millisecond), key, epoch, []byte("older"), minute))
			},
			func(epoch uint64) { save(t, s, key, epoch, "newer") }, "newer",
		},
		"a save after a drop": {
			func(stuck Store, epoch uint64) {
				require.Error(t, stuck.Save(within(t, 30*time.Millisecond), key, epoch, []byte("older"), minute))
			},
			func(epoch uint64) { require.NoError(t, s.Drop(t.Context(), key, epoch)) }, "",
		},
		"a drop after a save": {
			func(stuck Store, epoch uint64) {
				require.Error(t, stuck.Drop(within(t, 30*time.Millisecond), key, epoch))
			},
			func(epoch uint64) { save(t, s, key, epoch, "newer") }, "newer",
		},
		"a begin after a begin and a save": {
			func(stuck Store, epoch uint64) {
				_, err := stuck.Begin(within(t, 30*time.Millisecond), key, 0, minute)
				require.Error(t, err)
			},
			func(uint64) { save(t, s, key, begin(t, s, key), "newer") }, "newer",
		},
		"a take after a take": {
			func(stuck Store, epoch uint64) {
				_, _, err := stuck.Take(within(t, 30*time.Millisecond), key, AnyStep, minute)
				require.Error(t, err)
			},
			func(uint64) {
				epoch, _ := take(t, s, key)
				save(t, s, key, epoch, "newer")
			}, "newer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, server.socket, 0, nil)
			stuck := late(p)
			epoch := begin(t, s, key)
			save(t, s, key, epoch, "first")
			p.hold(true)
			c.before(stuck, epoch)
			c.after(epoch)
			epoch = owner(t, s, key)
			p.hold(false)
			time.Sleep(30 * time.Millisecond)
			require.Equal(t, c.want, saved(t, s, key))
			require.Equal(t, epoch, owner(t, s, key), "the owner is not replaced")
		})
	}
}
