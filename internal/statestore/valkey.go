package statestore

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"
)

// A valkeyStore keeps a hash for each key on a Valkey or Redis server, and the values next to
// it; valkeyscripts.go describes the fields. It connects when it is first used and whenever a connection is
// lost. Commands that are given at the same time share connections and are sent
// together.
type valkeyStore struct {
	shown       string
	by          string // differs from that of every other store
	client      valkey.Client
	connections connections
}

const (
	connectTimeout = 5 * time.Second // as long as a new connection takes at most
	silenceTimeout = 5 * time.Second // after which a server that answers nothing is connected to again
	// multiplex is the binary logarithm of the number of connections. With two of them, a value that is taken need not
	// wait for all those that are being saved.
	multiplex  = 1
	bufferSize = 32 << 10 // of a connection, for each direction
	// maxValue is what a server accepts as one argument unless it is told otherwise (proto-max-bulk-len). It closes the
	// connection for more, and other calls would fail too.
	maxValue = 512 << 20
	// onItsWay is how long a value without a TTL may take until the script that names it in the hash has run.
	onItsWay = time.Minute
)

func openValkey(t *target) (*valkeyStore, error) {
	s := &valkeyStore{shown: t.shown, by: rand.Text()}
	option := valkey.ClientOption{
		InitAddress:       []string{t.address},
		ForceSingleClient: true,
		Username:          t.user,
		Password:          t.password,
		SelectDB:          t.db,
		ClientName:        "tritonstateful",
		Dialer:            net.Dialer{Timeout: connectTimeout, KeepAlive: time.Second},
		ConnWriteTimeout:  silenceTimeout,
		PipelineMultiplex: multiplex,
		// What is larger passes by the buffers.
		ReadBufferEachConn:  bufferSize,
		WriteBufferEachConn: bufferSize,
		AlwaysPipelining:    true,
		DisableCache:        true,
		DisableRetry:        true, // the context would be the only limit
		DialCtxFn: func(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
			return s.connections.dial(ctx, t.network, address, dialer, config)
		},
	}
	if t.tlsName != "" {
		option.TLSConfig = &tls.Config{ServerName: t.tlsName, MinVersion: tls.VersionTLS12, RootCAs: t.roots}
	}
	// NewClient connects, which takes as long as the server wants; it returns a client also if that fails. So it fails.
	client, err := valkey.NewClient(option)
	if client == nil {
		return nil, fmt.Errorf("open the state store %s: %w", t.shown, err)
	}
	s.client = client
	s.connections.allowed.Store(true)
	return s, nil
}

func (s *valkeyStore) Close() {
	s.connections.allowed.Store(false)
	s.connections.closeAll() // else the client waits for the answers of a server that may not answer
	s.client.Close()
}

func (s *valkeyStore) Begin(ctx context.Context, key string, age, ttl time.Duration) (epoch uint64, err error) {
	began := time.Now().Add(-age)
	epoch, _, err = s.claim(ctx, "begin", key, ttl, beginScript, "", func(found *claimed, sent time.Time) error {
		// The server's time is that of a moment after the command was sent.
		if at := found.now - sent.Sub(began).Microseconds(); found.by != s.by && isLater(found.epoch, at, found.now) {
			return &FencedError{Epoch: uint64(at), Owner: found.epoch}
		}
		return nil
	})
	return epoch, err
}

func (s *valkeyStore) Take(ctx context.Context, key string, atMost uint64, ttl time.Duration) (epoch uint64, value []byte, err error) {
	return s.take(ctx, key, atMost, ttl, takeScript)
}

func (s *valkeyStore) TakeSaved(ctx context.Context, key string, atMost uint64, ttl time.Duration) (epoch uint64, value []byte, err error) {
	return s.take(ctx, key, atMost, ttl, takeSavedScript)
}

func (s *valkeyStore) take(ctx context.Context, key string, atMost uint64, ttl time.Duration, run *script) (epoch uint64, value []byte, err error) {
	return s.claim(ctx, "take over", key, ttl, run, strconv.FormatUint(atMost, 10), func(*claimed, time.Time) error { return nil })
}

// claimed is what a script of claimScript has found or done.
type claimed struct {
	owner string // as the server has it; none if nothing was to be taken
	epoch uint64 // the same
	value []byte
	// Of an owner that is not the one to be replaced:
	now int64  // the server's time, in microseconds
	by  string // who made it
}

func (c *claimed) read(answer []valkey.ValkeyMessage) (replaced bool, err error) {
	if len(answer) < 2 {
		return false, fmt.Errorf("the script returned %d values: want 2 or 3", len(answer))
	}
	if c.owner, err = answer[0].ToString(); err != nil {
		return false, err
	}
	if replaced = len(answer) == 2; replaced {
		c.value, err = bytesOrNil(answer[1].AsBytes())
		return replaced, err
	}
	now, err := answer[1].ToString()
	if err == nil {
		c.now, err = strconv.ParseInt(now, 16, 64)
	}
	if err == nil {
		c.by, err = answer[2].ToString()
	}
	if err == nil && c.owner != "" {
		c.epoch, err = parseEpoch(c.owner)
	}
	return false, err
}

// claim makes us the owner. The script is told which owner it replaces, and is tried
// again if it finds another one, unless that one is refused. So a command that is executed
// after its call has ended, because a server or a network was stopped, does nothing if
// anyone was the owner since.
func (s *valkeyStore) claim(ctx context.Context, doing, key string, ttl time.Duration, run *script, wants string, replaces func(found *claimed, sent time.Time) error) (epoch uint64, value []byte, err error) {
	got, err := call(ctx, func(longer context.Context) (claimed, error) {
		for found := (claimed{}); ; {
			if err := ctx.Err(); err != nil { // what it has found since is not to be replaced
				return claimed{}, err
			}
			sent := time.Now()
			answer, err := run.Exec(longer, s.client, []string{key}, []string{found.owner, milliseconds(ttl), s.by, wants}).ToArray()
			if err != nil {
				return claimed{}, err
			}
			replaced, err := found.read(answer)
			if replaced || err != nil {
				return found, err
			}
			if err := replaces(&found, sent); err != nil {
				return claimed{}, err
			}
		}
	})
	if err == nil && got.owner != "" {
		epoch, err = parseEpoch(got.owner)
	}
	if err != nil {
		return 0, nil, s.explain(doing, key, err)
	}
	return epoch, got.value, nil
}

func (s *valkeyStore) Save(ctx context.Context, key string, epoch uint64, value []byte, ttl time.Duration) error {
	if len(value) > maxValue {
		return s.explain("save", key, fmt.Errorf("the value has %d bytes: at most %d can be saved", len(value), maxValue))
	}
	owner, stamp := formatEpoch(epoch), nextStamp()
	name := valuePrefix + owner + "-" + stamp + ":" + strings.TrimPrefix(key, KeyPrefix)
	return s.owned(ctx, "save", key, epoch, func(ctx context.Context) valkey.ValkeyResult {
		// With a short TTL, a server that evicts would take it first.
		set := s.client.B().Set().Key(name).Value(valkey.BinaryString(value)).Px(cmp.Or(ttl, onItsWay)).Build()
		answer := saveScript.after(ctx, s.client, set, []string{key, name},
			[]string{owner, stamp, milliseconds(ttl), strconv.FormatUint(stepOf(value), 10)})
		if _, refused := valkey.IsValkeyErr(answer.Error()); refused { // else the value would stay until it expires
			s.client.Do(ctx, s.client.B().Del().Key(name).Build())
		}
		return answer
	})
}

func (s *valkeyStore) Drop(ctx context.Context, key string, epoch uint64) error {
	return s.End(ctx, key, epoch, 0)
}

func (s *valkeyStore) End(ctx context.Context, key string, epoch, steps uint64) error {
	arguments := []string{formatEpoch(epoch), nextStamp(), milliseconds(dropped), strconv.FormatUint(steps, 10), milliseconds(endKept)}
	return s.owned(ctx, "drop", key, epoch, func(ctx context.Context) valkey.ValkeyResult {
		return dropScript.Exec(ctx, s.client, []string{key}, arguments)
	})
}

// owned runs a script that returns a later owner, or nothing.
func (s *valkeyStore) owned(ctx context.Context, doing, key string, epoch uint64, run func(ctx context.Context) valkey.ValkeyResult) error {
	later, err := call(ctx, func(ctx context.Context) (string, error) {
		answer, err := run(ctx).ToString()
		if valkey.IsValkeyNil(err) {
			return "", nil
		}
		return answer, err
	})
	if err == nil && later != "" {
		var owner uint64
		if owner, err = parseEpoch(later); err == nil {
			err = &FencedError{Epoch: epoch, Owner: owner}
		}
	}
	return s.explain(doing, key, err)
}

func (s *valkeyStore) Owner(ctx context.Context, key string) (epoch uint64, steps []uint64, err error) {
	found, err := call(ctx, func(ctx context.Context) ([]string, error) {
		return ownerScript.Exec(ctx, s.client, []string{key}, nil).AsStrSlice()
	})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("the script returned nothing: want the owner")
	}
	if err == nil && found[0] != "" {
		epoch, err = parseEpoch(found[0])
	}
	for i := 1; i < len(found) && err == nil; i++ {
		var step uint64
		step, err = strconv.ParseUint(found[i], 10, 64)
		steps = append(steps, step)
	}
	return epoch, steps, s.explain("look up the owner of", key, err)
}

func (s *valkeyStore) Get(ctx context.Context, key string) (values [][]byte, err error) {
	values, err = call(ctx, func(ctx context.Context) (values [][]byte, err error) {
		found, err := getScript.Exec(ctx, s.client, []string{key}, nil).ToArray()
		for i := range found {
			value, failed := bytesOrNil(found[i].AsBytes())
			err = errors.Join(err, failed)
			if value != nil { // else it was evicted
				values = append(values, value)
			}
		}
		return values, err
	})
	return values, s.explain("read", key, err)
}

// globEscapes makes a prefix stand for itself in a pattern.
var globEscapes = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

func (s *valkeyStore) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	pattern := globEscapes.Replace(prefix) + "*"
	return func(yield func(string, error) bool) {
		for cursor := uint64(0); ; {
			found, err := call(ctx, func(ctx context.Context) (valkey.ScanEntry, error) {
				scan := s.client.B().Scan().Cursor(cursor).Match(pattern).Count(1000).Build()
				return s.client.Do(ctx, scan).AsScanEntry()
			})
			if err != nil {
				yield("", s.explain("list", prefix, err))
				return
			}
			for _, key := range found.Elements {
				if !strings.HasPrefix(key, valuePrefix) && !yield(key, nil) {
					return
				}
			}
			if cursor = found.Cursor; cursor == 0 {
				return
			}
		}
	}
}

// Check does what is done for a sequence. The key is gone a second later.
func (s *valkeyStore) Check(ctx context.Context) error {
	const key, ttl = KeyPrefix + "check", time.Second
	epoch, _, err := s.Take(ctx, key, AnyStep, ttl)
	if err == nil {
		// No FencedError is possible but from another server that checks at the same time.
		err = withoutFence(s.Save(ctx, key, epoch, []byte("check"), ttl))
	}
	if err == nil {
		_, err = s.Get(ctx, key)
	}
	if err == nil {
		err = withoutFence(s.Drop(ctx, key, epoch))
	}
	return err
}

// call calls f and returns when it does or when ctx ends, whatever comes first. f gets a
// context that lasts as long as ctx and at least as long as a connection may take: the
// first call makes it for all, and a short one must not end it. A panic is an error.
func call[T any](ctx context.Context, f func(ctx context.Context) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if reason := recover(); reason != nil {
				o.err = fmt.Errorf("the client panicked: %v", reason)
			}
			done <- o
		}()
		longer := context.WithoutCancel(ctx)
		if end, ends := ctx.Deadline(); ends {
			var cancel context.CancelFunc
			longer, cancel = context.WithTimeout(longer, max(time.Until(end), connectTimeout))
			defer cancel()
		}
		o.value, o.err = f(longer)
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// bytesOrNil returns no bytes and no error for what is not there.
func bytesOrNil(value []byte, err error) ([]byte, error) {
	if valkey.IsValkeyNil(err) {
		return nil, nil
	}
	return value, err
}

// milliseconds returns a TTL as the scripts want it, rounded up.
func milliseconds(ttl time.Duration) string {
	return strconv.FormatInt(int64((ttl+time.Millisecond-1)/time.Millisecond), 10)
}

// lastStamp is the stamp of the last command, of all stores of the process.
var lastStamp atomic.Uint64

// nextStamp returns a stamp that is later than any before. Stamps of one process are
// compared only with each other: a new owner removes those of the one before.
func nextStamp() string {
	for {
		last := lastStamp.Load()
		next := nextEpoch(last)
		if lastStamp.CompareAndSwap(last, next) {
			return formatEpoch(next)
		}
	}
}
