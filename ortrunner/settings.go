package ortrunner

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"

	ort "github.com/yalue/onnxruntime_go"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
)

// settings are what every session is given, in this order: later ones can win over earlier
// ones. Each has the words for what failed.
var settings = []struct {
	what string
	set  func(*ort.SessionOptions, *onnx.SessionOptions) error
}{
	{"graph optimization", setOptimization},
	{"execution mode", setExecutionMode},
	{"threads", setThreads},
	{"memory arena", func(options *ort.SessionOptions, o *onnx.SessionOptions) error {
		return options.SetCpuMemArena(!o.NoArena)
	}},
	{"memory pattern", func(options *ort.SessionOptions, o *onnx.SessionOptions) error {
		return options.SetMemPattern(!o.NoPattern)
	}},
	{"name in log lines", func(options *ort.SessionOptions, o *onnx.SessionOptions) error { return setLogID(options, o.Name) }},
	{"settings passed on", addEntries},
	{"custom operators", registerOperators},
}

// setOptions applies all of them. The error is that of the first that fails: which values
// are possible, the configuration has checked before.
func setOptions(options *ort.SessionOptions, o onnx.SessionOptions) error {
	for _, s := range settings {
		if err := s.set(options, &o); err != nil {
			return fmt.Errorf("session option %s: %w", s.what, err)
		}
	}
	return nil
}

func setOptimization(options *ort.SessionOptions, o *onnx.SessionOptions) error {
	level, known := optimization[o.Optimization]
	if !known {
		return status.Errorf(status.InvalidArg, "%q is unknown: want disabled, basic, extended or all", o.Optimization)
	}
	return options.SetGraphOptimizationLevel(level)
}

func setExecutionMode(options *ort.SessionOptions, o *onnx.SessionOptions) error {
	if o.Parallel {
		return options.SetExecutionMode(ort.ExecutionModeParallel)
	}
	return options.SetExecutionMode(ort.ExecutionModeSequential)
}

// setThreads gives the session threads of its own, or those of the process.
func setThreads(options *ort.SessionOptions, o *onnx.SessionOptions) error {
	if o.IntraOpThreads < 0 || o.InterOpThreads < 0 {
		return status.Errorf(status.InvalidArg, "%d for one operator and %d for several: want 0 or more", o.IntraOpThreads, o.InterOpThreads)
	}
	if process.globalThreads {
		c, err := optionsOf(options)
		if err != nil {
			return err
		}
		return statusError(C.ortx_share_threads(c))
	}
	return errors.Join(options.SetIntraOpNumThreads(intraOpThreads(o.IntraOpThreads)), options.SetInterOpNumThreads(o.InterOpThreads))
}

// defaultEntries are ours. Several instances share the cores: an idle session must not burn
// one.
var defaultEntries = []onnx.Setting{
	{Key: "session.intra_op.allow_spinning", Value: "0"},
	{Key: "session.inter_op.allow_spinning", Value: "0"},
}

func addEntries(options *ort.SessionOptions, o *onnx.SessionOptions) error {
	for _, s := range onnx.Override(defaultEntries, o.Session) {
		if err := options.AddSessionConfigEntry(s.Key, s.Value); err != nil {
			return status.Errorf(status.InvalidArg, "%s = %q: %w", s.Key, s.Value, err)
		}
	}
	return nil
}

// registerOperators opens libraries with custom operators, which stay open as long as the
// session.
func registerOperators(options *ort.SessionOptions, o *onnx.SessionOptions) error {
	for _, path := range o.Operators {
		if err := options.RegisterCustomOpsLibrary(path); err != nil {
			return status.Errorf(status.InvalidArg, "library %s, from op_library_filename: %w: want the path of a shared library that exports RegisterCustomOps, relative to the model's folder or absolute", path, err)
		}
	}
	return nil
}
