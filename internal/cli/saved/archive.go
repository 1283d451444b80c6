package saved

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"tritonstateful/internal/statestore"
)

// memberSuffix ends the names of members of an archive.
const memberSuffix = ".state"

// maxMember bounds what is read of a member: no store takes a larger value.
const maxMember = 512 << 20

// memberName is the name of a key's member: no key has a slash or two dots in it that a tool
// which unpacks the archive could stumble over.
func memberName(key string) string {
	return url.QueryEscape(strings.TrimPrefix(key, statestore.KeyPrefix)) + memberSuffix
}

// Export writes an archive of the values of some keys. Those without a value are left out, and
// a damaged one is an error. It returns how many sequences the archive has.
func Export(ctx context.Context, store statestore.Store, keys []string, to io.Writer) (count int, err error) {
	archive := tar.NewWriter(to)
	for _, key := range keys {
		value, err := store.Get(ctx, key)
		if err != nil {
			return count, err
		}
		if value == nil {
			continue
		}
		record, err := statestore.Parse(value)
		if err != nil {
			return count, fmt.Errorf("export %q: %w", key, err)
		}
		head := tar.Header{Name: memberName(key), Mode: 0o600, Size: int64(len(value)), ModTime: record.Saved}
		if err := archive.WriteHeader(&head); err != nil {
			return count, fmt.Errorf("export %q: %w", key, err)
		}
		if _, err := archive.Write(value); err != nil {
			return count, fmt.Errorf("export %q: %w", key, err)
		}
		count++
	}
	if err := archive.Close(); err != nil {
		return count, fmt.Errorf("end the archive: %w", err)
	}
	return count, nil
}

// ImportOptions are the choices of Import.
type ImportOptions struct {
	// Namespace is that of the keys, instead of the one that they were exported from.
	Namespace string
	// TTL is how long they stay; 0: for ever.
	TTL time.Duration
	// Overwrite: replace what is saved already.
	Overwrite bool
}

// ErrIsSaved says that a key of an archive has a value already.
var ErrIsSaved = errors.New("the store has a state under this key")

// Import saves what an archive has, and returns the keys. It becomes their owner: a server that
// serves one of the sequences drops it, and a resume continues from the imported state.
// If it fails, what came before in the archive is imported.
func Import(ctx context.Context, store statestore.Store, from io.Reader, o ImportOptions) (keys []string, err error) {
	archive := tar.NewReader(from)
	for {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return keys, nil
		}
		if err != nil {
			return keys, fmt.Errorf("read the archive: %w", err)
		}
		key, err := importOne(ctx, store, head, archive, o)
		if err != nil {
			return keys, fmt.Errorf("import %q: %w", head.Name, err)
		}
		keys = append(keys, key)
	}
}

func importOne(ctx context.Context, store statestore.Store, head *tar.Header, from io.Reader, o ImportOptions) (key string, err error) {
	name, ok := strings.CutSuffix(head.Name, memberSuffix)
	if ok {
		name, err = url.QueryUnescape(name)
	}
	if !ok || err != nil {
		return "", fmt.Errorf("its name is not that of a saved state: want an archive that tritonstateful state export wrote")
	}
	if key, err = Key(name); err != nil {
		return "", err
	}
	if o.Namespace != "" {
		_, id, _ := statestore.SplitKey(key)
		key = statestore.Key(o.Namespace, id)
	}
	value, err := io.ReadAll(io.LimitReader(from, maxMember))
	if err != nil {
		return "", err
	}
	record, err := statestore.Parse(value)
	if err != nil {
		return "", err
	}
	if !o.Overwrite {
		if there, err := store.Get(ctx, key); err != nil {
			return "", err
		} else if there != nil {
			return "", ErrIsSaved
		}
	}
	epoch, err := store.Begin(ctx, key, 0, o.TTL)
	if err != nil {
		return "", err
	}
	if value, err = withEpoch(record, epoch); err != nil {
		return "", err
	}
	return key, store.Save(ctx, key, epoch, value, o.TTL)
}

// withEpoch lays a record out again, with another owner.
func withEpoch(record *statestore.Record, epoch uint64) ([]byte, error) {
	tensors := make([]statestore.Tensor, len(record.Tensors))
	for i := range tensors {
		tensors[i] = record.Tensors[i].Tensor
	}
	var w statestore.Writer
	if err := w.Begin(record.Counters, tensors); err != nil {
		return nil, err
	}
	for i := range tensors {
		copy(w.Tensor(i), record.Tensors[i].Data)
	}
	head := record.Head
	head.Epoch = epoch
	return w.Seal(head), nil
}
