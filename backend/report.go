package backend

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/planner"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// reportParameters logs the value of each setting by its name, with those that have their
// defaults, when the model is loaded.
func (m *Model) reportParameters() {
	p, c := m.params, m.config
	ids := "numbers"
	if c.StringIDs() {
		ids = "strings"
	}
	values := []any{
		"file", m.path, "max_batch_size", c.MaxBatchSize, "preferred_batch_size", c.PreferredBatchSizes(), "max_candidate_sequences", c.Candidates(),
		"max_sequence_idle_microseconds", c.Idle().Microseconds(), "correlation_ids", ids,
	}
	for _, name := range slices.Sorted(maps.Keys(p.Settings)) {
		value := p.Settings[name]
		if name == "max_candidate_sequence_use_ratio" { // its default depends on the scheduler
			value = strconv.FormatFloat(float64(p.SlotRatio(c)), 'g', -1, 32)
		}
		values = append(values, name, value)
	}
	m.log.Info("settings", values...)
	m.reportLibraries()
	m.log.Debug("model configuration", "json", string(m.info.Config))
}

// reportLoad logs what an instance has made of the configuration: each tensor
// and what it is for, and the memory it takes. Models load side by side, so every
// line begins with the instance's name, and is a message of its own: the server
// escapes line ends.
func (in *Instance) reportLoad(provider onnx.Provider) {
	in.reportFree()
	in.reportIneffective(provider)
	in.reportMerged()
	if !in.verbosity.on(in.verbosity.info, slog.LevelInfo) {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "ready on %v", provider)
	if in.device != nil {
		fmt.Fprintf(&b, ", %v", in.device.Device())
	}
	fmt.Fprintln(&b)
	in.describeDevice(&b)
	in.describeTensors(&b)
	in.describeMemory(&b)
	for line := range strings.Lines(b.String()) {
		in.model.server.Log.Info(in.name + ": " + strings.TrimSpace(line))
	}
}

// reportFree logs that sequences are free, and what may surprise there.
func (in *Instance) reportFree() {
	p, c := in.model.params, in.model.config
	if in.saver != nil && !in.free && p.Checkpoint.Resume == config.ResumeOnMiss {
		in.log.Warn("parameter resume is on_miss, which has no effect with sequence_batching: Triton refuses a request of a sequence that it does not know; want dynamic_batching { } in its place")
	}
	if !in.free || !in.keeps {
		return
	}
	in.log.Info("free sequences: the scheduler is dynamic_batching, and the backend alone begins and ends sequences",
		"begin", p.Settings["begin"], "max_sequences", p.FreeSlots(c), "sequence_idle_ms", p.Free.Idle.Milliseconds())
	if c.Instances() < 2 && !c.Dynamic.Prefetches() {
		in.log.Warn("with priority_levels or a queue policy and one instance, Triton may hand over a request up to half a second late: want instance_group [{ count: 2 }], whose instances share the sequences")
	}
	if c.Dynamic.PriorityLevels > 1 {
		in.log.Info("requests of one sequence that have different priorities can come in another order than they were sent; with stateful_step the wrong order is an error", "priority_levels", c.Dynamic.PriorityLevels)
	}
}

// describeTensors writes a table of the model's tensors.
func (in *Instance) describeTensors(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 4, 2, ' ', 0)
	pl, sig := in.plan, in.runner.Signature()
	line := func(cells ...any) {
		for _, cell := range cells {
			fmt.Fprintf(t, "%v\t", cell)
		}
		fmt.Fprintln(t)
	}
	line("tensor", "role", "type", "shape", "batch axis", "bytes each")
	for i := range pl.Inputs {
		input := &pl.Inputs[i]
		line(input.Name, "input", input.DType, sig.Inputs[input.Index].Dims, axisName(input.Axis), size(&input.Layout, input.Varies))
	}
	for i := range pl.Generated {
		g := &pl.Generated[i]
		line(g.Name, g.Kind.String(), g.DType, sig.Inputs[g.Index].Dims, axisName(g.Axis), size(&g.Layout, g.Kind == plan.KindMask || g.Kind == plan.KindPositions))
	}
	for i := range pl.States {
		s := &pl.States[i]
		line(s.Input+" -> "+s.Output, "state from "+s.Source+", begins with "+s.Begins, s.DType, sig.Inputs[s.In].Dims, axisName(s.Axis)+", "+s.AxisFrom, size(&s.Layout, false))
	}
	for i := range pl.Varying {
		s, begins := &pl.Varying[i], "empty"
		if s.Begins != begins {
			begins = "with " + s.Begins
		}
		line(s.Input+" -> "+s.Output, fmt.Sprintf("varying state from %s%s, begins %s, %v", s.Source, s.UpdateRemark(), begins, s.Shape), s.DType, sig.Inputs[s.In].Dims, axisName(s.Axis)+", "+s.AxisFrom, size(&s.Layout, true))
	}
	for i := range pl.Outputs {
		output := &pl.Outputs[i]
		line(output.Name, "output", output.DType, sig.Outputs[output.Index].Dims, axisName(output.Axis), size(&output.Layout, output.Varies || output.IsState))
	}
	for _, output := range pl.Unused {
		line(sig.Outputs[output].Name, "not used", sig.Outputs[output].DType, sig.Outputs[output].Dims)
	}
	t.Flush()
}

// describeDevice writes what is left of the GPU's memory, by the CUDA driver and
// by NVML.
func (in *Instance) describeDevice(b *strings.Builder) {
	if in.device == nil {
		return
	}
	free, total, err := in.device.MemInfo()
	if err != nil {
		fmt.Fprintf(b, "memory of the GPU: %v\n", err)
		return
	}
	fmt.Fprintf(b, "memory of the GPU: %d of %d bytes are left", free, total)
	if managed := in.device.Device().Managed; managed != "" {
		fmt.Fprintf(b, "; NVML said before: %s", managed)
	}
	fmt.Fprintln(b)
}

// describeMemory writes how much memory the states take.
func (in *Instance) describeMemory(b *strings.Builder) {
	if pl := in.plan; pl.MaxLanes == 1 && pl.WhyOneLane != "" {
		fmt.Fprintf(b, "requests run one at a time: %s\n", pl.WhyOneLane)
	}
	batches := in.store.BatchBytes() + in.io.bytes()
	if !in.keeps {
		fmt.Fprintf(b, "no states; %d bytes for a batch of %d\n", batches, in.plan.MaxLanes)
		return
	}
	c, p, sizing := in.model.config, in.model.params, in.store.Sizing()
	fmt.Fprintf(b, "slots: %d now, at most %d", sizing.Initial, sizing.Total())
	if sizing.Lazy() {
		fmt.Fprintf(b, " in chunks of %d", sizing.Subsequent)
	}
	if in.free {
		fmt.Fprintf(b, "; max_sequences is %d", p.FreeSlots(c))
	} else {
		fmt.Fprintf(b, "; %s %d times max_candidate_sequence_use_ratio %v is %d", c.CandidatesField(), c.Candidates(), p.SlotRatio(c), int(float32(c.Candidates())*p.SlotRatio(c)))
	}
	if sizing.Lazy() {
		fmt.Fprint(b, ", minus what does not fill a chunk")
	}
	fmt.Fprint(b, "\nstates: ")
	if bytes := in.store.SlotBytes(); bytes > 0 || len(in.plan.Varying) == 0 {
		fmt.Fprintf(b, "%d bytes for each sequence, %d bytes now, at most %d; ", bytes, int64(sizing.Initial)*bytes, int64(sizing.Total())*bytes)
	}
	if n := len(in.plan.Varying); n > 0 {
		fmt.Fprintf(b, "%d that vary, each as large as it grows in its sequence, %s", n, limit("max_state_bytes", p.MaxStateBytes))
		fmt.Fprintf(b, ", all together %s; ", limit("max_state_memory_bytes", p.MaxStateMemory))
	}
	fmt.Fprintf(b, "%d bytes for a batch of %d\n", batches, in.plan.MaxLanes)
}

// limit is a limit that a parameter sets, in words; 0 is none.
func limit(parameter string, bytes int64) string {
	if bytes == 0 {
		return "no limit (" + parameter + ")"
	}
	return fmt.Sprintf("at most %d bytes (%s)", bytes, parameter)
}

func axisName(axis int) string {
	if axis == tensor.NoAxis {
		return "none"
	}
	return strconv.Itoa(axis)
}

// size is the bytes of a lane, as far as they are known.
func size(l *statebuffer.Layout, varies bool) string {
	if varies {
		return "varies"
	}
	return strconv.FormatInt(l.LaneBytes(), 10)
}

// reportIneffective logs the settings that do nothing on this instance.
func (in *Instance) reportIneffective(provider onnx.Provider) {
	c, p, pl := in.model.config, in.model.params, in.plan
	isGPU := p.NamesGPUProvider()
	if provider == onnx.CPU && !isGPU && p.GPUProvider != "cpu" {
		in.log.Warn(fmt.Sprintf("parameter ort_ep is %q and has no effect: this instance is on the CPU; GPU instances accept trt and cuda", p.GPUProvider))
	}
	idle := map[string]bool{
		"error_inject_rate":                true,
		"ort_ep":                           provider == onnx.CPU && isGPU,
		"compute_precision":                provider == onnx.CPU,
		"enable_trt_caching":               provider != onnx.TensorRT,
		"trt_cache_dir":                    provider != onnx.TensorRT || !p.TRTCache,
		"enable_cuda_graph":                provider == onnx.CPU,
		"gpu_mem_limit":                    provider == onnx.CPU,
		"cudnn_conv_algo_search":           provider == onnx.CPU,
		"arena_extend_strategy":            provider == onnx.CPU,
		"do_copy_in_default_stream":        provider == onnx.CPU,
		"share_session_between_instances":  provider != onnx.CPU,
		"store_states_as_fp16":             !pl.HasFP32State(),
		"max_padded_length":                len(pl.Masks) == 0,
		"max_state_bytes":                  len(pl.Varying) == 0,
		"max_state_memory_bytes":           !in.keeps,
		"detailed_metrics_logging_level":   p.MetricsPeriod == 0 || p.Log == config.LogNone,
		"infer_end_requests":               !in.sequences,
		"max_candidate_sequence_use_ratio": !in.keeps || in.free,
		"when_full":                        !in.keeps,
		"sequences":                        p.Free.Scheduling == config.ScheduleAuto,
		"resume":                           in.saver == nil,
	}
	for _, name := range config.FreeNames {
		idle[name] = !in.free || !in.keeps
	}
	for _, name := range config.LazyNames {
		idle[name] = !in.keeps
	}
	var given []string
	for name, is := range idle {
		if is && strings.TrimSpace(c.Parameters[name].String) != "" {
			given = append(given, name)
		}
	}
	if provider == onnx.CPU && len(p.Accelerators) > 0 {
		given = append(given, "gpu_execution_accelerator "+strings.Join(p.Accelerators, " and "))
	}
	if len(given) > 0 {
		slices.Sort(given)
		in.log.Info(fmt.Sprintf("without effect on this instance (%v): %s", provider, strings.Join(given, ", ")))
	}
}

// reportSharedScale warns of a model in which the requests of a batch influence each other's
// answers a little.
func (in *Instance) reportSharedScale() {
	if in.plan.MaxLanes == 1 {
		return
	}
	for _, name := range planner.Quantizers {
		if n := in.runner.Signature().Operators[name]; n > 0 {
			in.log.Warn("the model quantizes at run time, with one scale for all requests of a batch, so an answer depends a little on the other requests of the batch; if that matters, set max_batch_size: 1",
				"operator", name, "times", n)
		}
	}
}

// reportSaturation warns once that store_states_as_fp16 does not suit the model.
func (in *Instance) reportSaturation() {
	n := in.store.Counters().Saturated
	if n == 0 || in.saturated {
		return
	}
	in.saturated = true
	in.log.Warn("states are too large for store_states_as_fp16 and were clamped to 65504; this warning is not repeated", "elements", n)
}

// reportMerged warns of a merged decoder whose second request would fail.
func (in *Instance) reportMerged() {
	if advice := planner.MergedDecoderAdvice(in.model.config, in.model.params, in.runner.Signature()); advice != "" {
		in.log.Warn("the second request of a sequence will fail: " + advice)
	}
}
