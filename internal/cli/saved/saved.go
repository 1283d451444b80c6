package saved

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tritonstateful/internal/statestore"
	"tritonstateful/internal/tensor"
)

// A Sequence is what a store has of one sequence.
type Sequence struct {
	Key       string    `json:"key"` // NAMESPACE:ID, as Key reads it
	Namespace string    `json:"namespace"`
	ID        string    `json:"id"`       // a number, a quoted string, or @ and the client's key
	Owner     string    `json:"owner"`    // epoch of the owner, 16 hexadecimal digits
	Bytes     int       `json:"bytes"`    // of the newest value; 0: nothing is saved, only who owned it
	Steps     uint64    `json:"steps"`    // that were done when it was saved
	SavedAt   time.Time `json:"saved_at"` // zero if nothing is saved
	Model     string    `json:"model"`    // hash, 16 hexadecimal digits
	Layout    string    `json:"layout"`   // likewise
	Counters  []uint64  `json:"counters"`
	States    []State   `json:"states"`
	// Damage is why the value cannot be read; then only Bytes is known of it.
	Damage string `json:"damage,omitempty"`
	// Before is the value before, from which a client continues whose last answer was lost; null if there is none.
	Before *Before `json:"before"`
}

// Before describes the value before the newest.
type Before struct {
	Bytes   int       `json:"bytes"`
	Steps   uint64    `json:"steps"`
	SavedAt time.Time `json:"saved_at"`
	Damage  string    `json:"damage,omitempty"`
}

// A State is a tensor that is saved, of one sequence.
type State struct {
	Name     string       `json:"name"`
	Datatype string       `json:"datatype"` // as in Triton's protocol, such as FP32
	Shape    tensor.Shape `json:"shape"`
	Bytes    int          `json:"bytes"`
	// Of its elements that are finite: null if there are none.
	Min  *float64 `json:"min"`
	Max  *float64 `json:"max"`
	Mean *float64 `json:"mean"`
	// NotFinite counts NaN and infinite elements.
	NotFinite int `json:"not_finite"`
}

// ErrNothing says that a store has nothing under a key.
var ErrNothing = errors.New("the store has nothing under this key")

// Key returns the key in a store of what a user writes: NAMESPACE:ID, such as model/1:7, or a
// whole key.
func Key(written string) (string, error) {
	key := statestore.KeyPrefix + strings.TrimPrefix(written, statestore.KeyPrefix)
	namespace, id, ok := statestore.SplitKey(key)
	if !ok {
		return "", fmt.Errorf("the key %q: want NAMESPACE:ID, such as model/1:7, model/1:\"call\" or model/1:@call", written)
	}
	if id[0] != '@' && id[0] != '"' && strings.Trim(id, "0123456789") != "" {
		return "", fmt.Errorf("the key %q: its ID is %q: want a number, a string in quotes, or an @ and the client's key", written, id)
	}
	if quoted, is := strings.CutPrefix(id, `@"`); is {
		chosen, err := strconv.Unquote(`"` + quoted)
		if err != nil {
			return "", fmt.Errorf("the key %q: its ID is %q: want the client's key after the @, in quotes only as list shows it", written, id)
		}
		return statestore.Key(namespace, "@"+chosen), nil
	}
	return key, nil
}

// Show returns what users see of a key, and Key reads. A client can choose any bytes: those that a terminal would not show are
// escaped, in quotes.
func Show(key string) string {
	namespace, id, _ := statestore.SplitKey(key)
	return strings.TrimPrefix(statestore.Key(namespace, showID(id)), statestore.KeyPrefix)
}

func showID(id string) string {
	chosen, is := strings.CutPrefix(id, "@")
	if quoted := strconv.Quote(chosen); is && (quoted != `"`+chosen+`"` || strings.HasPrefix(chosen, `"`)) {
		return "@" + quoted
	}
	return id
}

// Read returns what a store has under a key; it fails with ErrNothing if there is nothing.
func Read(ctx context.Context, store statestore.Store, key string) (*Sequence, error) {
	owner, _, err := store.Owner(ctx, key)
	if err != nil {
		return nil, err
	}
	values, err := store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	switch {
	case len(values) > 0:
		s := describe(key, owner, values[0])
		for _, older := range values[1:] {
			b := describe(key, owner, older)
			s.Before = &Before{Bytes: b.Bytes, Steps: b.Steps, SavedAt: b.SavedAt, Damage: b.Damage}
		}
		return s, nil
	case owner != 0:
		return describe(key, owner, nil), nil
	default:
		return nil, fmt.Errorf("read %q: %w", key, ErrNothing)
	}
}

func describe(key string, owner uint64, value []byte) *Sequence {
	s := &Sequence{Owner: fmt.Sprintf("%016x", owner), Bytes: len(value), Counters: []uint64{}, States: []State{}}
	s.Namespace, s.ID, _ = statestore.SplitKey(key)
	s.Key, s.ID = Show(key), showID(s.ID)
	if value == nil {
		return s
	}
	record, err := statestore.Parse(value)
	if err != nil {
		s.Damage = err.Error()
		return s
	}
	s.Steps, s.SavedAt = record.Step, record.Saved.UTC()
	s.Model, s.Layout = hex.EncodeToString(record.Model[:]), hex.EncodeToString(record.Layout[:])
	s.Counters = append(s.Counters, record.Counters...)
	for i := range record.Tensors {
		s.States = append(s.States, stateOf(&record.Tensors[i]))
	}
	return s
}

// List returns what a store has in a namespace, sorted by key; all namespaces if it is empty.
// It reads every value. What ends meanwhile is left out.
func List(ctx context.Context, store statestore.Store, namespace string) ([]*Sequence, error) {
	keys, err := Keys(ctx, store, namespace)
	if err != nil {
		return nil, err
	}
	found := []*Sequence{}
	for _, key := range keys {
		s, err := Read(ctx, store, key)
		if errors.Is(err, ErrNothing) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, s)
	}
	return found, nil
}

// Keys returns the keys of a namespace, sorted; all if it is empty. Those of other programs that
// share the store are not among them.
func Keys(ctx context.Context, store statestore.Store, namespace string) ([]string, error) {
	prefix := statestore.KeyPrefix
	if namespace != "" {
		prefix = statestore.Key(namespace, "")
	}
	var keys []string
	for key, err := range store.Keys(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		if _, _, ok := statestore.SplitKey(key); ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// Drop deletes the values of a key. A server that has the sequence keeps it, and saves it again
// when it is due; with takeOver, the store refuses that, and the server drops the sequence, too.
func Drop(ctx context.Context, store statestore.Store, key string, takeOver bool) error {
	owner, _, err := store.Owner(ctx, key)
	if err != nil {
		return err
	}
	if owner == 0 {
		return fmt.Errorf("drop %q: %w", key, ErrNothing)
	}
	if takeOver {
		if owner, err = store.Begin(ctx, key, 0, dropped); err != nil {
			return err
		}
	}
	return store.Drop(ctx, key, owner)
}

// dropped is how long the store remembers that a sequence was taken over to be deleted; Drop
// makes it shorter.
const dropped = time.Hour
