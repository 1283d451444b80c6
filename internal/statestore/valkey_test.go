package statestore

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// within returns a context that ends soon.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// requireQuick: a call does not wait for what does not answer.
func requireQuick(t *testing.T, call func()) {
	t.Helper()
	start := time.Now()
	call()
	require.Less(t, time.Since(start), 2*time.Second)
}

func requireTemporary(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	var permanent *PermanentError
	require.False(t, errors.As(err, &permanent), "%v", err)
}

func requirePermanent(t *testing.T, err error, want string) {
	t.Helper()
	var permanent *PermanentError
	require.ErrorAs(t, err, &permanent)
	require.ErrorContains(t, err, want)
	require.NotContains(t, err.Error(), "secret")
}

func openURL(t *testing.T, url string) Store {
	t.Helper()
	where := storage{url: url}
	return where.open(t)
}

func TestCredentials(t *testing.T) {
	server := startServer(t)
	server.must(t, "ACL", "SETUSER", "ann", "on", ">secret2", "~tritonstateful:*", "+@all")
	server.must(t, "ACL", "SETUSER", "bob", "on", ">secret3", "~tritonstateful:*", "+@all", "-evalsha")
	server.must(t, "ACL", "SETUSER", "eve", "on", ">secret4", "~other:*", "+@all")
	server.must(t, slices.Concat([]string{"ACL", "SETUSER", "min", "on", ">secret6", "~tritonstateful:*"}, documentedCommands(t))...)
	server.must(t, "CONFIG", "SET", "requirepass", "secret")
	at := "@" + server.socket
	for name, c := range map[string]struct{ url, user, password, want string }{
		"password in the URL":            {"unix://:secret" + at, "", "", ""},
		"user in the URL":                {"unix://ann:secret2" + at, "", "", ""},
		"a user with what it needs":      {server.url() + "?db=1", "min", "secret6", ""},
		"the URL counts":                 {"unix://ann:secret2" + at, "eve", "secret4", ""},
		"password in a variable":         {server.url(), "", "secret", ""},
		"user in a variable":             {server.url(), "ann", "secret2", ""},
		"none":                           {server.url(), "", "", "NOAUTH"},
		"a wrong password":               {server.url(), "", "secret5", "WRONGPASS"},
		"a wrong user":                   {server.url(), "mallory", "secret", "WRONGPASS"},
		"a wrong password in the URL":    {"unix://ann:secret5" + at, "", "", "WRONGPASS"},
		"a user without a command":       {server.url(), "bob", "secret3", "NOPERM"},
		"a user without our keys":        {server.url(), "eve", "secret4", "No permissions to access a key"},
		"a database that does not exist": {"unix://ann:secret2" + at + "?db=1000", "", "", "DB index is out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(urlVariable, c.url)
			t.Setenv(userVariable, c.user)
			t.Setenv(passwordVariable, c.password)
			err := openURL(t, "env").Check(t.Context())
			if c.want == "" {
				require.NoError(t, err)
			} else {
				requirePermanent(t, err, c.want)
			}
		})
	}
}

// documentedCommands are those that docs/state-store.md says a user needs, each after a +.
func documentedCommands(t *testing.T) (allowed []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/state-store.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "- A user that may run ")
	require.True(t, found)
	list, _, _ := strings.Cut(rest, " on the keys")
	for _, command := range regexp.MustCompile("[A-Z]+").FindAllString(list, -1) {
		allowed = append(allowed, "+"+command)
	}
	return allowed
}

func TestDatabases(t *testing.T) {
	server := startServer(t)
	first, second := openURL(t, server.url()), openURL(t, server.url()+"?db=1")
	save(t, first, key, begin(t, first, key), "of the first")
	require.Zero(t, owner(t, second, key))
	require.Len(t, keys(t, first, ""), 1)
	require.Empty(t, keys(t, second, ""))
}

// TestFullServer refuses saves, and keeps what it has.
func TestFullServer(t *testing.T) {
	server := startServer(t, "--maxmemory-policy", "noeviction")
	s := openURL(t, server.url())
	epoch := begin(t, s, key)
	save(t, s, key, epoch, "kept")
	server.must(t, "CONFIG", "SET", "maxmemory", "1")
	err := s.Save(t.Context(), key, epoch, make([]byte, 1<<16), minute)
	requireTemporary(t, err)
	require.ErrorContains(t, err, "OOM")
	require.ErrorContains(t, s.Check(t.Context()), "OOM")
	_, err = s.Begin(t.Context(), key, 0, minute)
	require.ErrorContains(t, err, "OOM")
	require.Equal(t, "kept", saved(t, s, key))
	require.Equal(t, epoch, owner(t, s, key))
	require.NoError(t, s.Drop(t.Context(), key, epoch), "what is dropped makes room")
	require.Empty(t, saved(t, s, key))
	server.must(t, "CONFIG", "SET", "maxmemory", "0")
	save(t, s, key, epoch, "later")
}

// TestReplica: a server that has become a replica is left, as its address may lead to
// another one by now.
func TestReplica(t *testing.T) {
	replica, primary := startServer(t), startServer(t)
	p := startProxy(t, replica.socket, 0, nil)
	s := openURL(t, "valkey://"+p.address())
	epoch := begin(t, s, key)
	trySave := func() error { return s.Save(t.Context(), key, epoch, []byte("x"), minute) }
	for range 50 { // over all connections
		require.NoError(t, trySave())
	}
	replica.must(t, "REPLICAOF", "127.0.0.1", "1")
	err := trySave()
	requireTemporary(t, err)
	require.ErrorContains(t, err, "READONLY")
	p.mu.Lock()
	p.socket = primary.socket
	p.mu.Unlock()
	_ = trySave() // closes the connections that were made since
	require.Eventually(t, func() bool { return trySave() == nil }, 5*time.Second, time.Millisecond)
	for range 50 {
		require.NoError(t, trySave())
	}
}

func TestTooManyClients(t *testing.T) {
	server := startServer(t)
	server.must(t, "CONFIG", "SET", "maxclients", "1")
	conn, err := net.Dial("unix", server.socket)
	require.NoError(t, err)
	s := openURL(t, server.url())
	requireQuick(t, func() { requireTemporary(t, s.Check(t.Context())) })
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return s.Check(t.Context()) == nil }, 5*time.Second, 5*time.Millisecond)
}

func TestOtherServers(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	for name, c := range map[string]struct {
		address   string
		permanent bool
		want      string
	}{
		"loading":           {fakeServer(t, answering("-LOADING Valkey is loading the dataset in memory")), false, "LOADING"},
		"busy":              {fakeServer(t, answering("-BUSY Valkey is busy running a script")), false, "BUSY"},
		"a cluster":         {fakeServer(t, answering("-MOVED 3999 127.0.0.1:6381")), true, "it is a cluster, and this needs a single server"},
		"without scripts":   {fakeServer(t, answering("-ERR unknown command 'EVALSHA'")), true, "unknown command"},
		"a web server":      {web.Listener.Addr().String(), true, "unknown message type"},
		"unexpected answer": {fakeServer(t, answering("+OK")), false, "valkey message type"},
		"empty answer":      {fakeServer(t, answering("*0")), false, "returned 0 values"},
		"odd answer":        {fakeServer(t, answering("*2\r\n$1\r\nx\r\n$1\r\ny")), false, `epoch of the key is "x"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := openURL(t, "valkey://"+c.address)
			err := s.Check(within(t, 3*time.Second))
			if c.permanent {
				requirePermanent(t, err, c.want)
			} else {
				requireTemporary(t, err)
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

func TestForeignKeys(t *testing.T) {
	server := startServer(t)
	s := openURL(t, server.url())
	for name, c := range map[string]struct {
		make []string
		want string
	}{
		"a string":      {[]string{"SET", key, "x"}, "WRONGTYPE"},
		"a word":        {[]string{"HSET", key, "epoch", "x"}, `epoch of the key is "x"`},
		"upper case":    {[]string{"HSET", key, "epoch", "00000000000000FF"}, "epoch of the key"},
		"a large epoch": {[]string{"HSET", key, "epoch", "0020000000000000"}, "epoch of the key"},
		"a long epoch":  {[]string{"HSET", key, "epoch", "000000000000000ff"}, "epoch of the key"},
	} {
		t.Run(name, func(t *testing.T) {
			server.must(t, "FLUSHALL")
			server.must(t, c.make...)
			_, err := s.Begin(t.Context(), key, 0, minute)
			require.ErrorContains(t, err, c.want)
			_, _, err = s.Take(t.Context(), key, AnyStep, minute)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, s.Save(t.Context(), key, 1<<52, []byte("x"), minute), c.want)
			require.ErrorContains(t, s.Drop(t.Context(), key, 1<<52), c.want)
		})
	}
}

func TestScriptsAreLoadedAgain(t *testing.T) {
	server := startServer(t)
	s := openURL(t, server.url())
	epoch := begin(t, s, key)
	for range 3 {
		server.must(t, "SCRIPT", "FLUSH")
		save(t, s, key, epoch, "x")
	}
}

// TestEpochFollowsTheServersClock and never goes back, even if the clock does.
func TestEpochFollowsTheServersClock(t *testing.T) {
	server := startServer(t)
	s := openURL(t, server.url())
	future := uint64(time.Now().Add(time.Hour).UnixMicro())
	server.must(t, "HSET", key, "epoch", formatEpoch(future))
	require.Equal(t, future+1, begin(t, s, key))
	epoch, _ := take(t, s, key)
	require.Equal(t, future+2, epoch)
}

func TestValueTooLarge(t *testing.T) {
	server := startServer(t)
	s := openURL(t, server.url())
	require.ErrorContains(t, s.Save(t.Context(), key, 1, make([]byte, maxValue+1), minute), "at most 536870912 can be saved")
}

// TestSavesShareConnections: many at once take hardly longer than one, where the way to
// the server is long.
func TestSavesShareConnections(t *testing.T) {
	server := startServer(t)
	const delay = 20 * time.Millisecond
	p := startProxy(t, server.socket, delay, nil)
	s := openURL(t, "valkey://"+p.address())
	epoch := begin(t, s, Key("m", "0"))
	save(t, s, Key("m", "0"), epoch, "the script is loaded")
	start := time.Now()
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			if err := s.Save(t.Context(), Key("m", fmt.Sprint(i)), epoch, bytes.Repeat([]byte{1}, 1000), minute); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Less(t, time.Since(start), 20*delay, "one after the other they take 400")
	clients, err := server.do(t, "CLIENT", "LIST").ToString()
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(clients, "name=tritonstateful"), 1<<multiplex)
}

// TestTLS: the certificate must be one that we trust, for the host of the URL.
func TestTLS(t *testing.T) {
	server := startServer(t)
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	defer certificate.Close() // it only lends its certificate, which is for 127.0.0.1 and example.com
	roots := x509.NewCertPool()
	roots.AddCert(certificate.Certificate())
	p := startProxy(t, server.socket, 0, func(conn net.Conn) net.Conn {
		return tls.Server(conn, &tls.Config{Certificates: certificate.TLS.Certificates})
	})
	web := httptest.NewServer(nil)
	defer web.Close()
	_, port, err := net.SplitHostPort(p.address())
	require.NoError(t, err)
	for name, c := range map[string]struct {
		url   string
		roots *x509.CertPool
		want  string
	}{
		"trusted":              {"valkeys://" + p.address(), roots, ""},
		"not trusted":          {"rediss://" + p.address(), nil, "certificate signed by unknown authority"},
		"for another host":     {"valkeys://localhost:" + port, roots, "certificate is valid for"},
		"no TLS on their side": {"valkeys://" + web.Listener.Addr().String(), roots, "does not look like a TLS handshake"},
	} {
		t.Run(name, func(t *testing.T) {
			target, err := parseURL(c.url)
			require.NoError(t, err)
			target.roots = c.roots
			s, err := openValkey(target)
			require.NoError(t, err)
			defer s.Close()
			err = s.Check(within(t, 3*time.Second))
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			requirePermanent(t, err, c.want)
		})
	}
	requireTemporary(t, openURL(t, "valkey://"+p.address()).Check(within(t, 200*time.Millisecond)))
}
