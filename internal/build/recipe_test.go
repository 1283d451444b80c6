package build

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// kitchen is a recipe that copies its input to its output and counts how often.
type kitchen struct {
	recipe
	stamps string
	made   int
}

func newKitchen(t *testing.T) *kitchen {
	t.Helper()
	dir := t.TempDir()
	input, output := filepath.Join(dir, "input"), filepath.Join(dir, "output")
	require.NoError(t, os.WriteFile(input, []byte("flour"), 0o644))
	k := &kitchen{stamps: filepath.Join(dir, "stamps")}
	k.recipe = recipe{
		name:    "bread",
		inputs:  []string{input},
		words:   []string{"slowly"},
		outputs: []string{output},
		make: func() error {
			k.made++
			return copyFile(input, output)
		},
	}
	return k
}

func TestRecipeIsCookedOnlyWhenSomethingChanged(t *testing.T) {
	for name, test := range map[string]struct {
		change func(t *testing.T, k *kitchen)
		made   int
	}{
		"nothing": {func(*testing.T, *kitchen) {}, 1},
		"an input's time": {func(t *testing.T, k *kitchen) {
			require.NoError(t, os.WriteFile(k.inputs[0], []byte("flour"), 0o644))
		}, 1},
		"an input": {func(t *testing.T, k *kitchen) {
			require.NoError(t, os.WriteFile(k.inputs[0], []byte("rye"), 0o644))
		}, 2},
		"a word":           {func(_ *testing.T, k *kitchen) { k.words = []string{"fast"} }, 2},
		"where words part": {func(_ *testing.T, k *kitchen) { k.words = []string{"slow", "ly"} }, 2},
		"a lost output": {func(t *testing.T, k *kitchen) {
			require.NoError(t, os.Remove(k.outputs[0]))
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKitchen(t)
			require.NoError(t, k.cook(k.stamps))
			test.change(t, k)
			require.NoError(t, k.cook(k.stamps))
			require.Equal(t, test.made, k.made)
		})
	}
}

// A recipe that failed has left who knows what in its outputs, even if it had
// succeeded with the same inputs before.
func TestFailedRecipeIsCookedAgain(t *testing.T) {
	k := newKitchen(t)
	require.NoError(t, k.cook(k.stamps))
	words, bake := k.words, k.make
	k.words, k.make = []string{"too long"}, func() error { return errors.New("burnt") }
	require.EqualError(t, k.cook(k.stamps), "burnt")
	k.words, k.make = words, bake
	require.NoError(t, k.cook(k.stamps))
	require.Equal(t, 2, k.made)
}

func TestRecipeWithoutItsInput(t *testing.T) {
	k := newKitchen(t)
	require.NoError(t, os.Remove(k.inputs[0]))
	require.ErrorIs(t, k.cook(k.stamps), os.ErrNotExist)
	require.Zero(t, k.made)
}
