package saved

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
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

// Export writes an archive of the values of some keys. Those without a value are left out, and so are damaged values; those
// keys are in damaged if their newest value is. It returns how many sequences the archive has.
func Export(ctx context.Context, store statestore.Store, keys []string, to io.Writer) (count int, damaged []string, err error) {
	archive := tar.NewWriter(to)
	for _, key := range keys {
		values, err := store.Get(ctx, key)
		if err != nil {
			return count, damaged, err
		}
		if len(values) == 0 {
			continue
		}
		if _, err := statestore.Parse(values[0]); err != nil {
			damaged = append(damaged, key)
			continue
		}
		for _, value := range slices.Backward(values) { // a tool that unpacks the archive is left with the newest
			record, err := statestore.Parse(value)
			if err != nil {
				continue // the value before
			}
			if err := exportOne(archive, key, value, record); err != nil {
				return count, damaged, fmt.Errorf("export %q: %w", key, err)
			}
		}
		count++
	}
	if err := archive.Close(); err != nil {
		return count, damaged, fmt.Errorf("end the archive: %w", err)
	}
	return count, damaged, nil
}

func exportOne(archive *tar.Writer, key string, value []byte, record *statestore.Record) error {
	head := tar.Header{Name: memberName(key), Mode: 0o600, Size: int64(len(value)), ModTime: record.Saved}
	if err := archive.WriteHeader(&head); err != nil {
		return err
	}
	_, err := archive.Write(value)
	return err
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
	archive, epoch := tar.NewReader(from), uint64(0)
	for {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return keys, nil
		}
		if err != nil {
			return keys, fmt.Errorf("read the archive: %w", err)
		}
		key, err := importedKey(head, o)
		var record *statestore.Record
		if err == nil {
			record, err = readMember(archive)
		}
		newer := len(keys) > 0 && keys[len(keys)-1] == key // than the member before
		if err == nil && !newer {
			epoch, err = begin(ctx, store, key, o)
		}
		if err == nil {
			err = importOne(ctx, store, key, epoch, record, o)
		}
		if err != nil {
			return keys, fmt.Errorf("import %q: %w", head.Name, err)
		}
		if !newer {
			keys = append(keys, key)
		}
	}
}

func readMember(from io.Reader) (*statestore.Record, error) {
	value, err := io.ReadAll(io.LimitReader(from, maxMember))
	if err != nil {
		return nil, err
	}
	return statestore.Parse(value)
}

// importedKey returns the key of a member.
func importedKey(head *tar.Header, o ImportOptions) (key string, err error) {
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
	return key, nil
}

// begin becomes the owner of a key, which has no value then.
func begin(ctx context.Context, store statestore.Store, key string, o ImportOptions) (epoch uint64, err error) {
	if !o.Overwrite {
		if _, saved, err := store.Owner(ctx, key); err != nil {
			return 0, err
		} else if len(saved) > 0 {
			return 0, ErrIsSaved
		}
	}
	return store.Begin(ctx, key, 0, o.TTL)
}

func importOne(ctx context.Context, store statestore.Store, key string, epoch uint64, record *statestore.Record, o ImportOptions) error {
	value, err := withEpoch(record, epoch)
	if err != nil {
		return err
	}
	return store.Save(ctx, key, epoch, value, o.TTL)
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
