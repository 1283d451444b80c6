package main

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/status"
)

func TestSettings(t *testing.T) {
	var log strings.Builder
	parse := func(config string) (settings, error) {
		log.Reset()
		return parseSettings([]byte(config), slog.New(slog.NewTextHandler(&log, nil)))
	}
	for config, want := range map[string]settings{
		``:                                      {ortLogging: 2, defaultBatch: 4, metrics: true},
		`{}`:                                    {ortLogging: 2, defaultBatch: 4, metrics: true},
		`{"cmdline":{}}`:                        {ortLogging: 2, defaultBatch: 4, metrics: true},
		`{"cmdline":{"ort-logging-level":"0"}}`: {ortLogging: 0, defaultBatch: 4, metrics: true},
		`{"cmdline":{"ort-logging-level":"4","default-max-batch-size":"16","metrics":"false"}}`:                {ortLogging: 4, defaultBatch: 16},
		`{"cmdline":{"enable-global-threadpool":"1","intra_op_thread_count":"4","inter_op_thread_count":"0"}}`: {ortLogging: 2, defaultBatch: 4, metrics: true, globalThreads: true, intraOp: 4},
	} {
		got, err := parse(config)
		require.NoError(t, err, config)
		require.Equal(t, want, got, config)
		require.Empty(t, log.String(), config)
	}
	for _, level := range []string{"", "-1", "5", "1.0", " 1", "warning", "99999999999999999999"} {
		_, err := parse(fmt.Sprintf(`{"cmdline":{"ort-logging-level":%q}}`, level))
		require.ErrorContains(t, err, "--backend-config=stateful,ort-logging-level="+level)
		require.Equal(t, status.InvalidArg, status.CodeOf(err))
	}
	_, err := parse(`{"cmdline":{"metrics":"some"}}`)
	require.ErrorContains(t, err, "--backend-config=stateful,metrics=some: want true or false")
	_, err = parse(`{"cmdline":{"default-max-batch-size":"-1"}}`)
	require.ErrorContains(t, err, "--backend-config=default-max-batch-size=-1: want a whole number")
	_, err = parse(`{"cmdline":{"ort-loging-level":"1"}}`)
	require.NoError(t, err)
	require.Contains(t, log.String(), "ort-loging-level")
}

// TestGlobalThreadSettings: what is wrong with them, or does nothing, is said.
func TestGlobalThreadSettings(t *testing.T) {
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	for _, config := range []string{
		`{"cmdline":{"enable-global-threadpool":"maybe"}}`,
		`{"cmdline":{"intra_op_thread_count":"-1"}}`,
		`{"cmdline":{"inter_op_thread_count":"1025"}}`,
	} {
		_, err := parseSettings([]byte(config), logger)
		require.ErrorContains(t, err, "--backend-config=stateful,", config)
		require.Equal(t, status.InvalidArg, status.CodeOf(err))
	}
	_, err := parseSettings([]byte(`{"cmdline":{"intra_op_thread_count":"4"}}`), logger)
	require.NoError(t, err)
	require.Contains(t, log.String(), "no effect without enable-global-threadpool=1")
}
