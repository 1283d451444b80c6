package statestore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/valkey-io/valkey-go"
)

// connections are those that are open, so that they can be closed at once.
type connections struct {
	allowed atomic.Bool // new ones may be made
	mu      sync.Mutex
	open    map[*connection]bool
}

type connection struct {
	net.Conn
	in *connections
}

func (c *connection) Close() error {
	c.in.mu.Lock()
	delete(c.in.open, c)
	c.in.mu.Unlock()
	return c.Conn.Close()
}

// WriteString lets the client's buffer hand over what does not fit into it as it is.
// Without it a large value is copied there piece by piece.
func (c *connection) WriteString(text string) (int, error) {
	return c.Write(unsafe.Slice(unsafe.StringData(text), len(text)))
}

// unixBuffer is how much a Unix socket takes before the server reads it. The usual 208 KiB are less than a large value, and
// the goroutine that sends it would be put to sleep and woken several times. TCP adapts by itself.
const unixBuffer = 1 << 20

var errNotOpen = errors.New("the store is not open")

// dial makes a connection, with TLS if there is a config.
func (s *connections) dial(ctx context.Context, network, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
	if !s.allowed.Load() {
		return nil, errNotOpen
	}
	var conn net.Conn
	var err error
	if config != nil {
		conn, err = (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
	} else {
		conn, err = dialer.DialContext(ctx, network, address)
	}
	if err != nil {
		return nil, err
	}
	if unix, ok := conn.(*net.UnixConn); ok {
		_ = unix.SetWriteBuffer(unixBuffer) // or as much as the system allows
	}
	c := &connection{conn, s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*connection]bool{}
	}
	s.open[c] = true
	return c, nil
}

func (s *connections) closeAll() {
	s.mu.Lock()
	open := s.open
	s.open = nil
	s.mu.Unlock()
	for c := range open {
		_ = c.Conn.Close() // the client closes it too
	}
}

// explain says in an error what was being done, and whether it may go away by itself.
func (s *valkeyStore) explain(doing, key string, err error) error {
	if err == nil {
		return nil
	}
	reason := err.Error()
	if strings.HasPrefix(reason, "READONLY") {
		// The server became a replica. The address may lead to its successor by now, but not a connection that is open.
		s.connections.closeAll()
	}
	isPermanent := permanent(err)
	if strings.HasPrefix(reason, "MOVED") {
		err = fmt.Errorf("it is a cluster, and this needs a single server: %w", err)
	}
	err = fmt.Errorf("%s %q in the state store %s: %w", doing, key, s.shown, err)
	if isPermanent {
		return &PermanentError{err}
	}
	return err
}

// permanentReasons are parts of answers that come again until someone changes the URL,
// the credentials or the server.
var permanentReasons = []string{
	"WRONGPASS", "NOAUTH", "NOPERM", // credentials
	"DB index", "SELECT is not allowed", // the database
	"MOVED", "unknown command", // a cluster; not Valkey, or one that is too old
}

func permanent(err error) bool {
	answer, isAnswer := valkey.IsValkeyErr(err)
	if isAnswer {
		return slices.ContainsFunc(permanentReasons, func(part string) bool { return strings.Contains(answer.Error(), part) })
	}
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var notTLS tls.RecordHeaderError
	return errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid) || errors.As(err, &notTLS) ||
		errors.Is(err, fs.ErrPermission) || // of a socket
		strings.Contains(err.Error(), "unknown message type") // a server of another kind
}

// withoutFence returns the error, nil for a FencedError.
func withoutFence(err error) error {
	var fenced *FencedError
	if errors.As(err, &fenced) {
		return nil
	}
	return err
}
