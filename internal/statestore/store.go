package statestore

import (
	"context"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"
)

// A Store keeps the newest value of each key and the one before it, and who owns the key
// (see the package's comment). A call ends when its context does, with the context's error
// in the chain; it may take effect nevertheless, also later. A TTL of 0 is none: the key
// stays. Values that a caller gets are the caller's.
type Store interface {
	// Begin makes the caller the owner of key and deletes its values. It returns the
	// new epoch. age is how long ago the sequence began: the call fails with a
	// *FencedError if another server became the owner since then.
	Begin(ctx context.Context, key string, age, ttl time.Duration) (epoch uint64, err error)
	// Take makes the caller the owner of key. It returns the new epoch and the newest value
	// with at most that many steps; the sequence goes on from there, so a newer value is
	// deleted. If all values have more steps, it returns the newest; nil if none is saved. A value that is known to be
	// damaged does not count; if there is no other, the error is ErrDamaged.
	Take(ctx context.Context, key string, atMost uint64, ttl time.Duration) (epoch uint64, value []byte, err error)
	// TakeSaved is Take, but if it would return no value, it changes nothing, and returns no epoch: the owner goes on.
	TakeSaved(ctx context.Context, key string, atMost uint64, ttl time.Duration) (epoch uint64, value []byte, err error)
	// Save keeps value, which a Writer has sealed. Of the others it keeps the newest with
	// fewer steps. It fails with a *FencedError if the key has an owner of a later epoch.
	// The value must not change before Save has returned, nor ever after it has returned
	// an error: it may be on its way still.
	Save(ctx context.Context, key string, epoch uint64, value []byte, ttl time.Duration) error
	// Drop deletes the values; the epoch stays for a while, so that older servers
	// remain refused. It fails as Save does.
	Drop(ctx context.Context, key string, epoch uint64) error
	// End is Drop for a sequence that has ended with that many steps. Of the values the
	// newest with fewer steps stays for some seconds, for a client that did not get the
	// answer to the END: only a Take that wants fewer steps than that finds it.
	End(ctx context.Context, key string, epoch, steps uint64) error
	// Owner returns the epoch that owns key, 0 if there is none, and how many steps its
	// values have, the newest first. It fails with ErrDamaged if that is not known any more.
	Owner(ctx context.Context, key string) (epoch uint64, steps []uint64, err error)
	// Get returns the values without taking the key over, the newest first.
	Get(ctx context.Context, key string) (values [][]byte, err error)
	// Keys returns the keys that begin with prefix, in no order; those without a value
	// too. Keys that are made or deleted meanwhile may be missing, and a key may come
	// twice. The sequence ends with the first error.
	Keys(ctx context.Context, prefix string) iter.Seq2[string, error]
	// Check reports whether the store can be reached and lets us do all of the above.
	// A *PermanentError, such as a wrong password, needs someone to change something.
	Check(ctx context.Context) error
	// Close frees what the Store has. Calls that are running fail.
	Close()
}

// dropped is how long the epoch of a key stays after Drop, or as long as the key would
// have stayed if that is less.
const dropped = 10 * time.Minute

// endKept is how long a value stays after End: long enough for a client to find another server.
const endKept = 10 * time.Second

// Key returns the key of a sequence. The ID is a number (7), a string in quotes
// ("abc"), or a key that the client chose, after an @. So Key(namespace, "") is what
// all keys of a namespace begin with, and no other key.
func Key(namespace, id string) string {
	return KeyPrefix + namespaceEscapes.Replace(namespace) + ":" + id
}

// SplitKey returns what Key was given; false for what is no key of a sequence.
func SplitKey(key string) (namespace, id string, ok bool) {
	rest, ours := strings.CutPrefix(key, KeyPrefix)
	namespace, id, ok = strings.Cut(rest, ":")
	return namespaceUnescapes.Replace(namespace), id, ours && ok && namespace != "" && id != ""
}

// AnyStep is for Take: the newest value, whatever its number of steps.
const AnyStep = math.MaxUint64

// KeyPrefix begins every key, so that a store can be shared with others.
const KeyPrefix = "tritonstateful:"

// They let the first colon after the prefix end the namespace.
var (
	namespaceEscapes   = strings.NewReplacer("%", "%25", ":", "%3A")
	namespaceUnescapes = strings.NewReplacer("%25", "%", "%3A", ":")
)

// A FencedError says that a key was taken over: Owner is later than Epoch.
type FencedError struct{ Epoch, Owner uint64 }

func (e *FencedError) Error() string {
	return fmt.Sprintf("another server took over: epoch %d is older than %d", e.Epoch, e.Owner)
}

// A PermanentError is one that comes again until someone changes the URL, the
// credentials or the store.
type PermanentError struct{ err error }

func (e *PermanentError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *PermanentError) Unwrap() error { return e.err }
