package main

import (
	"encoding/json"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"

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
	// globalThreads: all models share the pools of threads below, in which 0 leaves the
	// number to ONNX Runtime.
	globalThreads    bool
	intraOp, interOp int
}

const (
	ortLoggingSetting = "ort-logging-level"
	ortLoggingDefault = 2 // warnings

	metricsSetting = "metrics"

	defaultBatchSetting = "default-max-batch-size"

	// Names of Triton's onnxruntime backend.
	globalThreadsSetting = "enable-global-threadpool"
	intraOpSetting       = "intra_op_thread_count"
	interOpSetting       = "inter_op_thread_count"
	maxThreads           = 1024
)

// ownSettings are those of this backend.
var ownSettings = []string{ortLoggingSetting, metricsSetting, globalThreadsSetting, intraOpSetting, interOpSetting}

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
	if err := s.readThreads(message.Cmdline, log); err != nil {
		return s, err
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
		case !tritonSettings[name] && !slices.Contains(ownSettings, name):
			log.Warn("unknown --backend-config setting is ignored", "setting", name, "known", strings.Join(ownSettings, ", "))
		}
	}
	return s, nil
}

// readThreads reads the settings of the threads that all models share.
func (s *settings) readThreads(given map[string]string, log *slog.Logger) error {
	if value, is := given[globalThreadsSetting]; is {
		on, err := strconv.ParseBool(value)
		if err != nil {
			return status.Errorf(status.InvalidArg, "--backend-config=stateful,%s=%s: want true or false", globalThreadsSetting, value)
		}
		s.globalThreads = on
	}
	for name, to := range map[string]*int{intraOpSetting: &s.intraOp, interOpSetting: &s.interOp} {
		value, is := given[name]
		if !is {
			continue
		}
		count, err := strconv.Atoi(value)
		if err != nil || count < 0 || count > maxThreads {
			return status.Errorf(status.InvalidArg, "--backend-config=stateful,%s=%s: want a whole number from 0 to %d; 0: ONNX Runtime chooses", name, value, maxThreads)
		}
		*to = count
		if !s.globalThreads {
			log.Warn("a --backend-config setting has no effect without "+globalThreadsSetting+"=1: each model has its own parameter of this name", "setting", name)
		}
	}
	return nil
}
