package cli

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/statestore"
	"tritonstateful/internal/tensor"
)

// savedStates fills a folder with what servers saved, and returns its URL.
func savedStates(t *testing.T) string {
	t.Helper()
	address := "file:" + filepath.Join(t.TempDir(), "states")
	store, err := statestore.Open(address)
	require.NoError(t, err)
	defer store.Close()
	const epoch = 0x0006499dcbfdc480
	for i, id := range []string{"7", `"call-1"`, "@a3f0"} {
		var w statestore.Writer
		steps := uint64(40 - 17*i)
		require.NoError(t, w.Begin([]uint64{512 * steps}, []statestore.Tensor{
			{Name: "state", DType: tensor.FP32, Shape: tensor.Shape{2, 1, 128}},
			{Name: "context", DType: tensor.FP32, Shape: tensor.Shape{1, 64}},
		}))
		for tensor := range 2 {
			for data, n := w.Tensor(tensor), 0.0; len(data) > 0; data, n = data[4:], n+1 {
				binary.LittleEndian.PutUint32(data, math.Float32bits(float32(math.Sin(n+float64(i)))))
			}
		}
		value := w.Seal(statestore.Head{
			Epoch: epoch + uint64(i), Step: steps, Saved: time.Date(2026, 11, 22, 9, 30, 5+i, 0, time.UTC),
			Model: [8]byte{0x1f, 0x77, 0x9b, 0x02, 0xc4, 0x5e, 0x60, 0xd1}, Layout: [8]byte{0x8a, 0x20, 0x4d, 0x11, 0xee, 0x03, 0x95, 0x3c},
		})
		require.NoError(t, store.Save(t.Context(), statestore.Key("silero/1", id), epoch+uint64(i), value, time.Hour))
	}
	return address
}

// TestStatePage: the page shows what the command prints.
func TestStatePage(t *testing.T) {
	address := savedStates(t)
	t.Chdir(t.TempDir())
	other := "file:" + t.TempDir()
	checkPage(t, "command-state.md", "file:/var/lib/states", address, "file:/var/lib/other", other)
}

func TestStateJSON(t *testing.T) {
	address := savedStates(t)
	code, out, _ := run(t, "state", "show", address, "silero/1:7", "--json")
	require.Equal(t, exitFine, code)
	var shown struct {
		Schema int
		Key    string
		Steps  int
		Saved  time.Time `json:"saved_at"`
		States []struct {
			Name  string
			Shape []int
			Min   *float64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	require.Equal(t, 1, shown.Schema)
	require.Equal(t, "silero/1:7", shown.Key)
	require.Equal(t, 40, shown.Steps)
	require.Equal(t, []int{2, 1, 128}, shown.States[0].Shape)

	code, out, _ = run(t, "state", "list", address, "nothing/1", "--json")
	require.Equal(t, exitFine, code)
	require.JSONEq(t, `{"schema": 1, "sequences": []}`, out)
}

// TestStateErrors: what was asked for, and what would be right.
func TestStateErrors(t *testing.T) {
	address := savedStates(t)
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{exitUsage, "want list, show, drop", []string{"state", "fly"}},
		{exitUsage, "want STORE [NAMESPACE]", []string{"state", "list"}},
		{exitUsage, "want one that begins with file:", []string{"state", "list", "ftp://x"}},
		{exitUsage, "want NAMESPACE:ID", []string{"state", "show", address, "7"}},
		{exitUsage, "want --to FILE", []string{"state", "export", address}},
		{exitUsage, "want one of them", []string{"state", "export", address, "a/1:7", "--namespace", "a/1", "--to", "x"}},
		{exitFailed, "there is no such folder", []string{"state", "list", "file:/no/such/folder"}},
		{exitFailed, "nothing under this key", []string{"state", "show", address, "silero/1:8"}},
		{exitFailed, "nothing under this key", []string{"state", "drop", address, "silero/1:8"}},
		{exitFailed, "1 of the 2 keys have no saved state", []string{"state", "export", address, "silero/1:7", "silero/1:8", "--to", filepath.Join(t.TempDir(), "x")}},
		{exitFailed, "no such file", []string{"state", "import", address, "/no/such/file"}},
	} {
		code, _, errs := run(t, c.args...)
		require.Equal(t, c.code, code, "%v: %s", c.args, errs)
		require.Contains(t, errs, c.want)
	}
}

// TestStateDamaged: a script can tell.
func TestStateDamaged(t *testing.T) {
	address := savedStates(t)
	store, err := statestore.Open(address)
	require.NoError(t, err)
	defer store.Close()
	key := statestore.Key("silero/1", "7")
	epoch, err := store.Begin(t.Context(), key, 0, time.Hour)
	require.NoError(t, err)
	require.NoError(t, store.Save(t.Context(), key, epoch, []byte("no value"), time.Hour))
	code, out, _ := run(t, "state", "show", address, "silero/1:7")
	require.Equal(t, exitFound, code)
	require.Contains(t, out, "damaged")
	code, _, _ = run(t, "state", "list", address)
	require.Equal(t, exitFound, code)

	// The others can be exported.
	to := filepath.Join(t.TempDir(), "states.tar")
	code, out, _ = run(t, "state", "export", address, "--to", to)
	require.Equal(t, exitFound, code)
	require.Equal(t, "left out, because it is damaged: silero/1:7\nexported 2 sequences to "+to+"\n", out)
	code, out, _ = run(t, "state", "import", "file:"+t.TempDir(), to)
	require.Equal(t, exitFine, code)
	require.Equal(t, "imported silero/1:\"call-1\"\nimported silero/1:@a3f0\n", out)
}

// TestStateKeepsTheExportBefore: an export that fails leaves the file as it was, and nothing next to it.
func TestStateKeepsTheExportBefore(t *testing.T) {
	address, folder := savedStates(t), t.TempDir()
	to := filepath.Join(folder, "states.tar")
	require.NoError(t, os.WriteFile(to, []byte("before"), 0o600))
	code, _, _ := run(t, "state", "export", address, "silero/1:8", "--to", to)
	require.Equal(t, exitFailed, code)
	text, err := os.ReadFile(to)
	require.NoError(t, err)
	require.Equal(t, "before", string(text))
	code, _, _ = run(t, "state", "export", address, "--to", to)
	require.Equal(t, exitFine, code)
	info, err := os.Stat(to)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.Greater(t, info.Size(), int64(6))
	found, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, found, 1)
	code, out, _ := run(t, "state", "export", address, "--to", "/dev/null")
	require.Equal(t, exitFine, code, out)
}

// TestStateKeysOfClients: a client can choose any bytes as its key. They are shown so that a terminal is safe from them, and
// what is shown names the sequence.
func TestStateKeysOfClients(t *testing.T) {
	address := "file:" + filepath.Join(t.TempDir(), "states")
	store, err := statestore.Open(address)
	require.NoError(t, err)
	defer store.Close()
	chosen := map[string]string{
		"plain é":                "@plain é",
		"\x1b[31m\n\xff\x00/../": `@"\x1b[31m\n\xff\x00/../"`,
		`"quoted"`:               `@"\"quoted\""`,
		`back\slash`:             `@"back\\slash"`,
		"colon:%3A":              "@colon:%3A",
	}
	for name := range chosen {
		var w statestore.Writer
		require.NoError(t, w.Begin(nil, []statestore.Tensor{{Name: "s", DType: tensor.FP32, Shape: tensor.Shape{1}}}))
		require.NoError(t, store.Save(t.Context(), statestore.Key("m/1", "@"+name), 1, w.Seal(statestore.Head{Epoch: 1}), time.Hour))
	}
	_, out, _ := run(t, "state", "list", address, "--keys")
	for _, shown := range chosen {
		require.Contains(t, out, "m/1:"+shown+"\n")
		code, text, errs := run(t, "state", "show", address, "m/1:"+shown, "--json")
		require.Equal(t, exitFine, code, errs)
		var s struct{ Key, ID string }
		require.NoError(t, json.Unmarshal([]byte(text), &s))
		require.Equal(t, "m/1:"+shown, s.Key)
		require.Equal(t, shown, s.ID)
	}
	require.NotContains(t, out, "\x1b")
	code, out, errs := run(t, "state", "drop", address, `m/1:@"\"quoted\""`)
	require.Equal(t, exitFine, code, errs)
	require.Equal(t, "dropped m/1:@\"\\\"quoted\\\"\"\n", out)
	code, _, _ = run(t, "state", "show", address, `m/1:@"open`)
	require.Equal(t, exitUsage, code)
}
