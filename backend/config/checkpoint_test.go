package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCheckpoint(t *testing.T) {
	for text, want := range map[string]Checkpoint{
		"":             {When: EveryInterval, Interval: time.Second},
		"interval=250": {When: EveryInterval, Interval: 250 * time.Millisecond},
		" steps = 10 ": {When: EverySteps, Steps: 10, Interval: time.Second},
		"request":      {When: OnRequest, Interval: time.Second},
		"sync":         {When: EveryStep, Interval: time.Second},
		"off":          {When: Never, Interval: time.Second},
	} {
		p, warnings, err := ParseParameters(map[string]Value{"state_store": {"file:/d"}, "checkpoint": {text}})
		require.NoError(t, err, text)
		require.Empty(t, warnings)
		want.Store, want.Timeout = "file:/d", time.Second
		require.Equal(t, want, p.Checkpoint, text)
	}
	for _, text := range []string{"steps", "steps=0", "steps=-1", "steps=x", "interval=0", "always", "sync=1", "interval=99999999999"} {
		_, _, err := ParseParameters(map[string]Value{"state_store": {"file:/d"}, "checkpoint": {text}})
		require.ErrorContains(t, err, `checkpoint is "`+text+`": want steps=N`)
	}
}

func TestCheckpointNeedsStore(t *testing.T) {
	p, warnings, err := ParseParameters(map[string]Value{"checkpoint": {"sync"}, "checkpoint_rate": {"5"}})
	require.NoError(t, err)
	require.Len(t, warnings, 2)
	require.Contains(t, warnings[0], "checkpoint has no effect without state_store")
	require.Empty(t, p.Checkpoint.Store)
}

func TestSavedFor(t *testing.T) {
	var c Checkpoint
	require.Equal(t, 24*time.Hour, c.SavedFor(0))
	require.Equal(t, time.Minute, c.SavedFor(time.Second))
	require.Equal(t, 10*time.Minute, c.SavedFor(5*time.Minute))
	c.TTL = 5 * time.Second
	require.Equal(t, 5*time.Second, c.SavedFor(5*time.Minute))
}

func TestStoreWithoutCredentials(t *testing.T) {
	p, _, err := ParseParameters(map[string]Value{"state_store": {"valkey://me:secret@host:6379/0"}})
	require.ErrorContains(t, err, "want them in the environment")
	require.NotContains(t, err.Error(), "secret")
	require.NotContains(t, p.Settings, "state_store")
	p, _, err = ParseParameters(map[string]Value{"state_store": {"valkey://me:sec%ret@host"}}) // which cannot be parsed
	require.ErrorContains(t, err, "the URL cannot be parsed")
	require.NotContains(t, err.Error(), "sec%ret")
	require.NotContains(t, p.Settings, "state_store")
	p, warnings, err := ParseParameters(map[string]Value{"state_store": {"none"}})
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Empty(t, p.Checkpoint.Store)
}
