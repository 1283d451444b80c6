package saved

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/statestore"
	"tritonstateful/internal/tensor"
)

const hour = time.Hour

// save saves a state of two numbers, and returns its owner.
func save(t *testing.T, store statestore.Store, key string, steps uint64, numbers ...float32) (epoch uint64) {
	t.Helper()
	epoch, err := store.Begin(t.Context(), key, 0, hour)
	require.NoError(t, err)
	require.NoError(t, store.Save(t.Context(), key, epoch, value(t, epoch, steps, numbers...), hour))
	return epoch
}

func value(t *testing.T, epoch, steps uint64, numbers ...float32) []byte {
	t.Helper()
	var w statestore.Writer
	require.NoError(t, w.Begin([]uint64{steps, 16 * steps}, []statestore.Tensor{
		{Name: "h", DType: tensor.FP32, Shape: tensor.Shape{1, int64(len(numbers))}},
		{Name: "offset", DType: tensor.Int64, Shape: tensor.Shape{}},
	}))
	for i, n := range numbers {
		binary.LittleEndian.PutUint32(w.Tensor(0)[4*i:], math.Float32bits(n))
	}
	binary.LittleEndian.PutUint64(w.Tensor(1), math.MaxUint64) // -1
	return w.Seal(statestore.Head{Epoch: epoch, Step: steps, Saved: time.Unix(1800000000, 5), Model: [8]byte{1}, Layout: [8]byte{2}})
}

func folder(t *testing.T) statestore.Store {
	t.Helper()
	store, err := statestore.Open("file:" + t.TempDir())
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

func TestReadDescribesWhatIsSaved(t *testing.T) {
	store, key := folder(t), statestore.Key("model/1", "7")
	epoch := save(t, store, key, 12, -2, 4, float32(math.NaN()))
	s, err := Read(t.Context(), store, key)
	require.NoError(t, err)
	low, high, mean, minus := -2.0, 4.0, 1.0, -1.0
	require.Equal(t, &Sequence{
		Key: "model/1:7", Namespace: "model/1", ID: "7", Owner: fmt.Sprintf("%016x", epoch), Bytes: s.Bytes, Steps: 12,
		SavedAt: time.Unix(1800000000, 5).UTC(), Model: "0100000000000000", Layout: "0200000000000000", Counters: []uint64{12, 192},
		States: []State{
			{Name: "h", Datatype: "FP32", Shape: tensor.Shape{1, 3}, Bytes: 12, Min: &low, Max: &high, Mean: &mean, NotFinite: 1},
			{Name: "offset", Datatype: "INT64", Shape: tensor.Shape{}, Bytes: 8, Min: &minus, Max: &minus, Mean: &minus},
		},
	}, s)
	owner, _, err := store.Owner(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, epoch, owner, "reading takes nothing over")
}

func TestReadWhatIsNotThereOrDamaged(t *testing.T) {
	store := folder(t)
	_, err := Read(t.Context(), store, statestore.Key("model/1", "7"))
	require.ErrorIs(t, err, ErrNothing)

	key := statestore.Key("model/1", "8")
	epoch, err := store.Begin(t.Context(), key, 0, hour)
	require.NoError(t, err)
	s, err := Read(t.Context(), store, key)
	require.NoError(t, err, "it has an owner and no value")
	require.Zero(t, s.Bytes)

	require.NoError(t, store.Save(t.Context(), key, epoch, []byte("TSST and no more"), hour))
	s, err = Read(t.Context(), store, key)
	require.NoError(t, err)
	require.Contains(t, s.Damage, "it has no head")
}

func TestListOfANamespace(t *testing.T) {
	store := folder(t)
	for _, key := range []string{statestore.Key("b", "@x"), statestore.Key("a:1", "2"), statestore.Key("a:1", "10")} {
		save(t, store, key, 1, 1)
	}
	for namespace, want := range map[string][]string{
		"":    {"a%3A1:10", "a%3A1:2", "b:@x"},
		"a:1": {"a%3A1:10", "a%3A1:2"},
		"a":   {},
	} {
		found, err := List(t.Context(), store, namespace)
		require.NoError(t, err)
		keys := []string{}
		for _, s := range found {
			keys = append(keys, s.Key)
		}
		require.Equal(t, want, keys)
	}
}

func TestDropDisturbsTheOwnerOnlyWhenTold(t *testing.T) {
	store, key := folder(t), statestore.Key("model/1", "7")
	epoch := save(t, store, key, 1, 1)
	require.NoError(t, Drop(t.Context(), store, key, false))
	got, err := store.Get(t.Context(), key)
	require.NoError(t, err)
	require.Empty(t, got)
	require.NoError(t, store.Save(t.Context(), key, epoch, value(t, epoch, 2, 1), hour), "its server saves it again")

	require.NoError(t, Drop(t.Context(), store, key, true))
	var fenced *statestore.FencedError
	require.ErrorAs(t, store.Save(t.Context(), key, epoch, value(t, epoch, 3, 1), hour), &fenced)
	require.ErrorIs(t, Drop(t.Context(), store, statestore.Key("model/1", "8"), false), ErrNothing)
}

func TestExportAndImport(t *testing.T) {
	from, to := folder(t), folder(t)
	keys := []string{statestore.Key("model/1", "7"), statestore.Key("model/1", "@../a b"), statestore.Key("model/1", `"ü"`)}
	for i, key := range keys {
		save(t, from, key, uint64(i)+1, float32(i))
	}
	second, _, err := from.Take(t.Context(), keys[1], statestore.AnyStep, hour)
	require.NoError(t, err)
	require.NoError(t, from.Save(t.Context(), keys[1], second, value(t, second, 8, 5), hour)) // and there is one before
	_, err = from.Begin(t.Context(), statestore.Key("model/1", "9"), 0, hour)                 // nothing is saved
	require.NoError(t, err)
	all, err := Keys(t.Context(), from, "model/1")
	require.NoError(t, err)
	require.Len(t, all, 4)
	var file bytes.Buffer
	count, damaged, err := Export(t.Context(), from, all, &file)
	require.Empty(t, damaged)
	require.NoError(t, err)
	require.Equal(t, 3, count)

	old := save(t, to, keys[0], 99, 1) // of a server that serves it now
	_, err = Import(t.Context(), to, bytes.NewReader(file.Bytes()), ImportOptions{TTL: hour})
	require.ErrorIs(t, err, ErrIsSaved)
	imported, err := Import(t.Context(), to, bytes.NewReader(file.Bytes()), ImportOptions{TTL: hour, Overwrite: true})
	require.NoError(t, err)
	require.ElementsMatch(t, keys, imported)
	var fenced *statestore.FencedError
	require.ErrorAs(t, to.Save(t.Context(), keys[0], old, value(t, old, 100, 1), hour), &fenced)
	for _, key := range keys {
		a, err := Read(t.Context(), from, key)
		require.NoError(t, err)
		b, err := Read(t.Context(), to, key)
		require.NoError(t, err)
		a.Owner, b.Owner = "", ""
		require.Equal(t, a, b)
		_, taken, err := to.Take(t.Context(), key, statestore.AnyStep, hour) // as a server that resumes it
		require.NoError(t, err)
		require.Equal(t, a.Steps, describe(key, 0, taken).Steps)
	}

	moved, err := Import(t.Context(), to, bytes.NewReader(file.Bytes()), ImportOptions{Namespace: "model/2"})
	require.NoError(t, err)
	require.Contains(t, moved, statestore.Key("model/2", "7"))
}

func TestImportRefusesOtherFiles(t *testing.T) {
	member := func(name, content string) io.Reader {
		var file bytes.Buffer
		w := tar.NewWriter(&file)
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content))}))
		_, err := io.WriteString(w, content)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return &file
	}
	for want, file := range map[string]io.Reader{
		"read the archive":                  bytes.NewReader([]byte("no archive at all")),
		"not that of a saved state":         member("notes.txt", "x"),
		"want NAMESPACE:ID":                 member("notes.state", "x"),
		"it has no head, which is 64 bytes": member("model%2F1%3A7.state", "x"),
	} {
		_, err := Import(context.Background(), folder(t), file, ImportOptions{})
		require.ErrorContains(t, err, want)
	}
}

func TestKeysThatUsersWrite(t *testing.T) {
	for written, want := range map[string]string{
		"model/1:7":                "tritonstateful:model/1:7",
		"tritonstateful:model/1:7": "tritonstateful:model/1:7",
		`m:"a:b"`:                  `tritonstateful:m:"a:b"`,
		"m:@call":                  "tritonstateful:m:@call",
	} {
		key, err := Key(written)
		require.NoError(t, err)
		require.Equal(t, want, key)
	}
	for written, want := range map[string]string{
		"7": "want NAMESPACE:ID", "": "want NAMESPACE:ID", "m:": "want NAMESPACE:ID", ":7": "want NAMESPACE:ID",
		"m:call": "want a number, a string in quotes",
	} {
		_, err := Key(written)
		require.ErrorContains(t, err, want)
	}
}
