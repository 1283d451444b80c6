package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tritonstateful/internal/onnx"
)

// session reads the parameters about the session of ONNX Runtime, which have the names that
// they have in Triton's onnxruntime backend, and some a name of their own.
func (r *paramReader) session() onnx.SessionOptions {
	o := onnx.SessionOptions{
		IntraOpThreads: r.count(r.either("intra_op_threads", "intra_op_thread_count"), 1, maxThreads),
		InterOpThreads: r.count(r.either("inter_op_threads", "inter_op_thread_count"), 1, maxThreads),
		Parallel:       oneOf(r, "execution_mode", false, choice("0", false), choice("1", true)),
		Optimization: oneOf(r, "graph_optimization", "all",
			choice("disabled", "disabled"), choice("basic", "basic"), choice("extended", "extended"), choice("all", "all")),
		NoArena:   !r.flag("enable_mem_arena", true),
		NoPattern: !r.flag("enable_mem_pattern", true),
		Plugin:    r.plugin(),
	}
	if o.InterOpThreads > 1 && !o.Parallel { // 0 is what the samples of Triton's onnxruntime backend have
		r.warnings = append(r.warnings, fmt.Sprintf("parameter %s has no effect: the operators of a model run one after the other, unless execution_mode is 1", r.either("inter_op_threads", "inter_op_thread_count")))
	}
	r.passedOn(&o)
	return o
}

// maxThreads is the most threads that a model may ask for.
const maxThreads = 1024

// either returns the name under which a parameter of two names was given: ours, or that of
// Triton's onnxruntime backend. Both with different values are a fault.
func (r *paramReader) either(ours, theirs string) string {
	a, both := r.value(ours)
	b, given := r.value(theirs)
	if !given {
		return ours
	}
	if both && a != b && !r.faulty[theirs] {
		r.reject(theirs, fmt.Errorf("parameters %s = %q and %s = %q say different things of the same: remove one of them", ours, a, theirs, b))
	}
	return theirs
}

// settingPrefixes are the beginnings of names that ONNX Runtime gives its settings.
var settingPrefixes = []string{"session.", "optimization.", "mlas.", "ep.", "memory."}

// refusals say what to write for settings that ONNX Runtime reports under such names, but
// does not read under them, and why one that it reads is not passed on.
var refusals = map[string]string{
	"session.enable_cpu_mem_arena":     "use the parameter enable_mem_arena",
	"session.enable_mem_pattern":       "use the parameter enable_mem_pattern",
	"session.execution_mode":           "use the parameter execution_mode",
	"session.graph_optimization_level": "use the parameter graph_optimization",
	"session.intra_op_num_threads":     "use the parameter intra_op_thread_count",
	"session.inter_op_num_threads":     "use the parameter inter_op_thread_count",
	"session.log_severity_level":       "use the server's option --backend-config=stateful,ort-logging-level",
	"session.set_denormal_as_zero":     "it would stay set for the thread that opens the first session of the process, so answers would depend on the instance and on the order in which models load",
	"session.use_per_session_threads":  "use the server's option --backend-config=stateful,enable-global-threadpool",
}

// passedOn reads the settings of ONNX Runtime that are passed on under their own names.
// ONNX Runtime accepts any name, so a misspelt one would go unnoticed there.
func (r *paramReader) passedOn(o *onnx.SessionOptions) {
	for _, name := range slices.Sorted(maps.Keys(r.given)) {
		kind, ofSession := onnx.SessionKeys[name]
		if ofRun, is := onnx.RunKeys[name]; is {
			kind = ofRun
		} else if !ofSession {
			r.refuseSetting(name)
			continue
		}
		text, ok := r.value(name)
		if !ok {
			continue
		}
		value, err := kind.Check(text)
		if err != nil {
			r.reject(name, fmt.Errorf("parameter %s is %q: %w", name, text, err))
			continue
		}
		if ofSession {
			o.Session = append(o.Session, onnx.Setting{Key: name, Value: value})
		} else {
			o.Run = append(o.Run, onnx.Setting{Key: name, Value: value})
		}
	}
	r.shrinkage(o)
}

// passedOnNames are the names of all settings that can be passed on, in order.
func passedOnNames() []string {
	names := append(slices.Collect(maps.Keys(onnx.SessionKeys)), slices.Collect(maps.Keys(onnx.RunKeys))...)
	slices.Sort(names)
	return names
}

// refuseSetting reports a parameter that is named like a setting of ONNX Runtime.
func (r *paramReader) refuseSetting(name string) {
	if !slices.ContainsFunc(settingPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
		return
	}
	r.known[name] = true
	remedy := "docs/parameters.md lists those that there are"
	if refusal := refusals[name]; refusal != "" {
		remedy = refusal
	} else if near := nearest(name, passedOnNames()); near != "" {
		remedy = fmt.Sprintf("did you mean %q?", near)
	}
	r.reject(name, fmt.Errorf("parameter %s is no setting of ONNX Runtime that can be passed on: %s", name, remedy))
}

// shrinkage checks the list of arenas, which ONNX Runtime reads only in a run. A wrong list
// is left out: every run that proves the batch axes would fail with it.
func (r *paramReader) shrinkage(o *onnx.SessionOptions) {
	o.Run = slices.DeleteFunc(o.Run, func(s onnx.Setting) bool {
		return s.Key == onnx.ArenaShrinkage && !r.canShrink(s, o.NoArena)
	})
}

// canShrink reports whether the arenas of a list are there, else it notes the fault.
func (r *paramReader) canShrink(s onnx.Setting, noArena bool) bool {
	for part := range strings.SplitSeq(s.Value, ";") {
		device, number, found := strings.Cut(part, ":")
		if !found || device != "cpu" && device != "gpu" || strings.Trim(number, "0123456789") != "" || number == "" {
			r.fault(s.Key, s.Value, "DEVICE:NUMBER, separated by semicolons, such as cpu:0;gpu:0")
			return false
		}
		if device == "cpu" && noArena {
			r.reject(s.Key, fmt.Errorf("parameter %s is %q, and enable_mem_arena is 0: there is no arena on the CPU to shrink: remove one of them", s.Key, s.Value))
			return false
		}
	}
	return true
}

// plugin reads the parameters of an execution provider in a library of its own.
func (r *paramReader) plugin() *onnx.Plugin {
	p := &onnx.Plugin{Library: r.text("ort_ep_library", ""), Name: r.text("ort_ep_name", "")}
	for _, a := range r.assignments("ort_ep_options") {
		p.Options = append(p.Options, onnx.Setting{Key: a.Name, Value: a.Value})
	}
	if p.Library != "" {
		return p
	}
	for _, name := range []string{"ort_ep_name", "ort_ep_options"} {
		if _, given := r.value(name); given {
			r.reject(name, fmt.Errorf("parameter %s is given: ort_ep_library must be given with it", name))
		}
	}
	return nil
}

// cuda reads the options of the CUDA execution provider that Triton's onnxruntime backend
// takes as parameters. It has numbers for some of ONNX Runtime's words.
func (r *paramReader) cuda() (options []onnx.Setting) {
	add := func(key, value string) {
		if value != "" {
			options = append(options, onnx.Setting{Key: key, Value: value})
		}
	}
	add("cudnn_conv_algo_search", oneOf(r, "cudnn_conv_algo_search", "", choice("0", "EXHAUSTIVE"), choice("1", "HEURISTIC"), choice("2", "DEFAULT")))
	add("arena_extend_strategy", oneOf(r, "arena_extend_strategy", "", choice("0", "kNextPowerOfTwo"), choice("1", "kSameAsRequested")))
	if _, given := r.value("do_copy_in_default_stream"); given {
		add("do_copy_in_default_stream", map[bool]string{false: "0", true: "1"}[r.flag("do_copy_in_default_stream", true)])
	}
	return options
}
