package main

import (
	"encoding/json"
	"log/slog"
	"math"
	"strconv"

	"tritonstateful/backend/config"
	"tritonstateful/internal/status"
)

// settings is what the server's command line says to this backend, by
// --backend-config=stateful,<setting>=<value>.
type settings struct {
	// ortLogging is ONNX Runtime's log level: 0 verbose to 4 fatal.
	ortLogging int
	// defaultBatch is Triton's own default-max-batch-size, which it gives to
	// every backend.
	defaultBatch int
	// metrics: report them to Triton.
	metrics bool
}

const (
	ortLoggingSetting = "ort-logging-level"
	ortLoggingDefault = 2 // warnings

	metricsSetting = "metrics"

	defaultBatchSetting = "default-max-batch-size"
)

// tritonSettings are those that Triton adds to every backend's.
var tritonSettings = map[string]bool{
	"auto-complete-config":   true,
	"backend-directory":      true,
	"min-compute-capability": true,
}

// parseSettings reads the JSON of TRITONBACKEND_BackendConfig, which is empty
// where nothing was set.
func parseSettings(text []byte, log *slog.Logger) (settings, error) {
	s := settings{ortLogging: ortLoggingDefault, defaultBatch: config.ServerBatch, metrics: true}
	if len(text) == 0 {
		return s, nil
	}
	var message struct {
		Cmdline map[string]string `json:"cmdline"`
	}
	if err := json.Unmarshal(text, &message); err != nil {
		return s, status.Errorf(status.Internal, "backend configuration %q: %w", text, err)
	}
	for name, value := range message.Cmdline {
		switch {
		case name == ortLoggingSetting:
			level, err := strconv.Atoi(value)
			if err != nil || level < 0 || level > 4 {
				return s, status.Errorf(status.InvalidArg,
					"--backend-config=stateful,%s=%s: want 0 (verbose), 1 (info), 2 (warning), 3 (error) or 4 (fatal)",
					name, value)
			}
			s.ortLogging = level
		case name == metricsSetting:
			on, err := strconv.ParseBool(value)
			if err != nil {
				return s, status.Errorf(status.InvalidArg, "--backend-config=stateful,%s=%s: want true or false", name, value)
			}
			s.metrics = on
		case name == defaultBatchSetting:
			size, err := strconv.Atoi(value)
			if err != nil || size < 0 || size > math.MaxInt32 {
				return s, status.Errorf(status.InvalidArg, "--backend-config=%s=%s: want a whole number from 0 to %d", name, value, math.MaxInt32)
			}
			s.defaultBatch = size
		case !tritonSettings[name]:
			log.Warn("unknown --backend-config setting is ignored", "setting", name, "known", ortLoggingSetting+", "+metricsSetting)
		}
	}
	return s, nil
}
