package backend

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"text/tabwriter"

	"tritonstateful/statebuffer"
)

// reportParameters logs each setting once, when the model is loaded.
func (m *Model) reportParameters() {
	p, c := m.params, m.config
	m.host.Log.Info("settings",
		"file", m.path, "max_batch_size", c.MaxBatchSize, "preferred_batch_size", c.preferred(),
		"max_candidate_sequences", c.candidates(), "use_ratio", p.UseRatio, "lazy_buffers", p.Lazy, "idle", c.Idle(),
		"string_ids", c.StringIDs(), "infer_end_requests", p.InferEnd, "store_states_as_fp16", p.HalfStates,
		"batch_padding", p.Padding, "when_full", p.Full, "intra_op_threads", p.IntraOpThreads, "inter_op_threads", p.InterOpThreads,
		"graph_optimization", p.Optimization)
	m.host.Log.Debug("model configuration", "json", string(m.info.Config))
}

// reportLoad logs what an instance has made of the configuration: each tensor
// and what it is for, and the memory it takes.
func (in *Instance) reportLoad(provider Provider) {
	in.reportIneffective(provider)
	if !in.levels.on(in.levels.info, slog.LevelInfo) {
		return
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	w, sig := in.wiring, in.runner.Signature()
	fmt.Fprintf(t, "%s: ready on %v\n  tensor\trole\ttype\tmodel\tbatch axis\tbytes each\n", in.name, provider)
	for _, p := range w.inputs {
		fmt.Fprintf(t, "  %s\tinput\t%v\t%v\t%s\t%s\n", p.Name, p.DType, sig.Inputs[p.at].Dims, axisName(p.axis), size(&p.Layout, p.varies))
	}
	for _, f := range w.fills {
		fmt.Fprintf(t, "  %s\t%s\t%v\t%v\t%s\t%s\n", f.name, fillNames[f.kind], f.dtype, sig.Inputs[f.at].Dims, axisName(f.axis), size(&f.Layout, false))
	}
	for _, s := range w.states {
		fmt.Fprintf(t, "  %s -> %s\tstate, from %s, begins with %s\t%v\t%v\t%s, %s\t%s\n", s.input, s.output, s.source, s.begin, s.dtype, sig.Inputs[s.in].Dims, axisName(s.axis), s.how, size(&s.Layout, false))
	}
	for _, s := range w.varying {
		fmt.Fprintf(t, "  %s -> %s\tvarying state, from %s, begins with %s %v\t%v\t%v\t%s, %s\t%s\n", s.input, s.output, s.source, s.begin, s.shape, s.dtype, sig.Inputs[s.in].Dims, axisName(s.axis), s.how, size(&s.Layout, true))
	}
	for _, p := range w.outputs {
		fmt.Fprintf(t, "  %s\toutput\t%v\t%v\t%s\t%s\n", p.Name, p.DType, sig.Outputs[p.at].Dims, axisName(p.axis), size(&p.Layout, p.varies || p.stateOut))
	}
	for _, at := range w.unused {
		fmt.Fprintf(t, "  %s\tnot used\t%v\t%v\t\t\n", sig.Outputs[at].Name, sig.Outputs[at].DType, sig.Outputs[at].Dims)
	}
	if w.maxLanes == 1 && w.why != "" {
		fmt.Fprintf(t, "  requests run one at a time: %s\n", w.why)
	}
	t.Flush()
	u, sizing := in.store.Usage(), in.store.Sizing()
	fmt.Fprintf(&b, "  states: %d bytes for each sequence; %d slots now, at most %d, in chunks of %d then %d; %d bytes now, at most %d",
		in.store.RowBytes(), u.Rows, u.Total, sizing.Initial, sizing.Subsequent, u.Bytes, int64(u.Total)*in.store.RowBytes())
	for line := range strings.Lines(b.String()) { // one message each: the server escapes line ends
		in.model.host.Log.Info(strings.TrimRight(line, "\n"))
	}
}

func axisName(axis int) string {
	if axis == noAxis {
		return "none"
	}
	return strconv.Itoa(axis)
}

// size is the bytes of a lane, as far as they are known.
func size(l *statebuffer.Layout, varies bool) string {
	if varies {
		return "varies"
	}
	return strconv.FormatInt(l.RowBytes(), 10)
}

// reportIneffective names once the settings that do nothing on this instance.
func (in *Instance) reportIneffective(provider Provider) {
	var idle []string
	for _, name := range gpuParameters {
		if in.model.config.Parameters[name].String != "" && (provider == CPU || provider == CUDA && strings.Contains(name, "trt")) {
			idle = append(idle, name)
		}
	}
	if in.model.params.HalfStates && !in.wiring.hasFP32State() {
		idle = append(idle, "store_states_as_fp16")
	}
	if len(idle) > 0 {
		in.log.Info(fmt.Sprintf("without effect on this instance (%v): %s", provider, strings.Join(idle, ", ")))
	}
}

// maintain is what is done between batches, when all answers are out.
func (in *Instance) maintain(x *execution) {
	now := in.host().Clock
	if x.ran > 0 {
		change, err := in.store.Maintain(now)
		switch u := in.store.Usage(); {
		case err != nil:
			in.log.Warn("could not allocate more slots, trying again later", "slots", u.Rows, "error", err)
		case change.Grown && in.levels.on(in.levels.info, slog.LevelInfo):
			in.log.Info("allocated a chunk of slots", "chunks", u.Chunks, "slots", u.Rows, "free", u.Free, "took", change.Took)
		case change.Shrunk && in.levels.on(in.levels.info, slog.LevelInfo):
			in.log.Info("released a chunk of slots", "chunks", u.Chunks, "slots", u.Rows, "free", u.Free, "took", change.Took)
		}
		in.report.batch(&x.spans, change.Took, now(), in.log)
	}
}
