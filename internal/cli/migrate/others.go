package migrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The targets in words.
const (
	nvidiaName = "NVIDIA's backend"
	tritonName = "Triton's onnxruntime backend"
)

// nvidiaParameters are those that NVIDIA's backend reads.
var nvidiaParameters = []string{
	"onnx_file_name", "state_pairs", "ort_ep", "compute_precision", "store_states_as_fp16", "max_candidate_sequence_use_ratio",
	"initial_buffer_size", "subsequent_buffer_size", "buffer_alloc_threshold", "buffer_dealloc_threshold",
	"always_pad_to_max_batch", "infer_end_requests", "enable_trt_caching", "trt_cache_dir", "enable_cuda_graph",
	"logging_level", "batch_info_logging_level", "metric_logging_frequency_seconds", "detailed_metrics_logging_level", "error_inject_rate",
}

// meaning are parameters of this backend without which a model computes something else or does
// not load. Others change when and how fast it does.
var meaning = []string{"batch_axes", "initial_states", "state_updates", "constant_inputs", "derived_inputs", "state_store"}

// dropOthers removes the parameters that a target does not read.
func (e *editor) dropOthers(target string, reads func(name string) bool) {
	removed := e.removeMessages(e.fields, "parameters", func(body []*field) bool { return !reads(valueOf(body, "key")) })
	for _, body := range removed {
		name := valueOf(body, "key")
		if slices.Contains(meaning, name) {
			value, _ := e.parameter(name)
			e.open = append(e.open, fmt.Sprintf("%s has nothing like the parameter %s = %s: the model has to do it", target, name, strings.TrimSpace(value)))
		}
		e.note("remove the parameter "+name, target+" does not read it in this form")
	}
}

// toNVIDIA makes a configuration one of NVIDIA's stateful_backend.
func (e *editor) toNVIDIA(look func() ([]State, error)) error {
	const target = nvidiaName
	e.setBackend("stateful")
	// It needs all pairs, and knows no patterns.
	pairs := e.pairs()
	incomplete := pairs == "" || strings.ContainsAny(pairs, "*{")
	e.dropOthers(target, func(name string) bool {
		return slices.Contains(nvidiaParameters, name) && (name != "state_pairs" || !incomplete)
	})
	if _, given := e.parameter("onnx_file_name"); !given {
		file := valueOf(e.fields, "default_model_filename")
		if file == "" {
			file = "model.onnx"
		}
		e.addParameter("onnx_file_name", file, target+" requires it")
	}
	_, sequence := e.sequence()
	if len(named(sequence, "oldest")) == 0 {
		e.open = append(e.open, target+" needs sequence_batching { oldest { max_candidate_sequences: N } }")
	}
	if len(named(e.fields, "input")) == 0 || len(named(e.fields, "output")) == 0 {
		e.open = append(e.open, target+" does not read inputs and outputs from the model: write input, output and max_batch_size, which tritonstateful inspect --json has in config")
	}
	if incomplete {
		states, err := e.statesFor(target, look)
		if err != nil {
			return err
		}
		e.addParameter("state_pairs", pairsOf(states, func(s State) (string, string) { return s.Input, s.Output }), target+" requires it, without patterns")
	}
	if _, given := e.parameter("max_candidate_sequence_use_ratio"); !given && len(e.listed()) > 0 {
		e.addParameter("max_candidate_sequence_use_ratio", "1", "a slot for each candidate sequence, as with a list; the default with state_pairs is 0.9")
	}
	e.removeField(sequence, "state", "state_pairs says the same")
	return nil
}

// varying says what targets do with states whose size changes.
var varying = map[string]string{
	nvidiaName: "NVIDIA's backend keeps only states of one size",
	tritonName: "Triton's onnxruntime backend runs only sequences of one size together",
}

// statesFor are the states that the model has. What only this backend can do with them is open.
func (e *editor) statesFor(target string, look func() ([]State, error)) ([]State, error) {
	states, err := look()
	if err != nil {
		return nil, fmt.Errorf("look at the states of the model: %w", err)
	}
	if len(states) == 0 {
		return nil, fmt.Errorf("the model has no states: nothing is to be migrated to %s", target)
	}
	for _, s := range states {
		if s.Varies {
			e.open = append(e.open, fmt.Sprintf("state %s changes its size from step to step: %s", s.Input, varying[target]))
		}
		if !s.Zeros {
			e.open = append(e.open, fmt.Sprintf("state %s begins with %s: see whether %s does that", s.Input, s.Begins, target))
		}
	}
	return states, nil
}

// toTriton makes a configuration one of Triton's onnxruntime backend, whose states are a list.
func (e *editor) toTriton(look func() ([]State, error)) error {
	const target = tritonName
	e.setBackend("onnxruntime")
	pairs := e.pairs()
	e.dropOthers(target, func(name string) bool {
		switch name {
		case "intra_op_thread_count", "inter_op_thread_count", "execution_mode", "enable_mem_arena", "enable_mem_pattern",
			"cudnn_conv_algo_search", "gpu_mem_limit", "arena_extend_strategy", "do_copy_in_default_stream",
			"share_session_between_instances", "memory.enable_memory_arena_shrinkage", "session.use_device_allocator_for_initializers":
			return true
		}
		return false
	})
	field, _ := e.sequence()
	if field == nil {
		return fmt.Errorf("the configuration has no sequence_batching, which %s needs for states", target)
	}
	if len(e.listed()) > 0 && pairs == "" {
		return nil
	}
	states, err := e.statesFor(target, look)
	if err != nil {
		return err
	}
	e.removeField(field.fields, "state", "it is written again, complete")
	indent := "  "
	lines := make([]string, len(states))
	for i, s := range states {
		if s.BatchAxis != 0 {
			e.open = append(e.open, fmt.Sprintf("state %s has its batch at axis %d: %s needs it at axis 0", s.Input, s.BatchAxis, target))
		}
		lines[i] = fmt.Sprintf("%s  { input_name: %s output_name: %s data_type: %s dims: [ %s ] initial_state { name: \"zero\" data_type: %s dims: [ %s ] zero_data: true } }",
			indent, quote(s.Input), quote(s.Output), s.DataType, joinDims(s.Dims, -1), s.DataType, joinDims(s.Dims, 1))
	}
	text := "\n" + indent + "state [\n" + strings.Join(lines, ",\n") + "\n" + indent + "]"
	if line, _, _ := strings.Cut(e.text[field.body:], "\n"); strings.TrimSpace(line) != "" {
		text += "\n " // what follows in the line begins with a blank
	}
	e.insert(field.body, text)
	e.note("write sequence_batching { state }", target+" has its states there")
	return nil
}

// joinDims writes dims; where they vary they are what varying says.
func joinDims(dims []int64, varying int64) string {
	words := make([]string, len(dims))
	for i, dim := range dims {
		if dim < 0 {
			dim = varying
		}
		words[i] = strconv.FormatInt(dim, 10)
	}
	return strings.Join(words, ", ")
}
