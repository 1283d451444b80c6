package main

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/faketriton"
)

func TestLog(t *testing.T) {
	serve(t, newEcho())
	log := newLog()
	lines := map[string]func(){
		"plain":                       func() { log.Info("plain") },
		`loaded model=m states=2`:     func() { log.Info("loaded", "model", "m", "states", 2) },
		`odd text="two words" empty=`: func() { log.Info("odd", "text", "two words", "empty", "") },
		`m a=1 b=2`:                   func() { log.With("a", 1).Info("m", "b", 2) },
		`m g.a=1 g.h.b=2`:             func() { log.WithGroup("g").With("a", 1).Info("m", slog.Group("h", "b", 2)) },
		`failed err="no file"`:        func() { log.Info("failed", "err", errors.New("no file")) },
	}
	for want, write := range lines {
		write()
		line, level := faketriton.LastLog()
		require.Equal(t, 0, level)
		source, text, found := strings.Cut(line, "] ")
		require.True(t, found)
		require.Regexp(t, `^log_test\.go:\d+$`, source)
		require.Equal(t, want, text)
	}
}

func TestLogLevels(t *testing.T) {
	serve(t, newEcho())
	log := newLog()
	log.Debug("unwanted")
	line, _ := faketriton.LastLog()
	require.NotContains(t, line, "unwanted")

	faketriton.SetVerbose(true)
	for want, write := range []func(string, ...any){log.Info, log.Warn, log.Error, log.Debug} {
		write("m")
		_, level := faketriton.LastLog()
		require.Equal(t, want, level)
	}
}
