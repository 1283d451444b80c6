package backend

import (
	"fmt"
	"log/slog"
	"strings"
	"text/tabwriter"
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
	fmt.Fprintf(t, "instance %s is ready on %v\n  tensor\trole\ttype\tmodel\tbatch axis\tbytes each\n", in.name, provider)
	for _, p := range w.inputs {
		fmt.Fprintf(t, "  %s\tinput\t%v\t%v\t%d\t%d\n", p.Name, p.DType, sig.Inputs[p.at].Dims, p.axis, p.RowBytes())
	}
	for _, c := range w.controls {
		fmt.Fprintf(t, "  %s\t%s\t%v\t%v\t%d\t%d\n", c.name, strings.ToLower(strings.TrimPrefix(c.kind, "CONTROL_SEQUENCE_")), c.dtype, sig.Inputs[c.at].Dims, c.axis, c.dtype.Size())
	}
	for _, s := range w.states {
		fmt.Fprintf(t, "  %s -> %s\tstate\t%v\t%v\t%d (%s)\t%d\n", s.name, sig.Outputs[s.out].Name, s.dtype, sig.Inputs[s.in].Dims, s.axis[0], s.how, s.RowBytes())
	}
	for _, p := range w.outputs {
		fmt.Fprintf(t, "  %s\toutput\t%v\t%v\t%d\t%d\n", p.Name, p.DType, sig.Outputs[p.at].Dims, p.axis, p.RowBytes())
	}
	for _, at := range w.unused {
		fmt.Fprintf(t, "  %s\tnot used\t%v\t%v\t\t\n", sig.Outputs[at].Name, sig.Outputs[at].DType, sig.Outputs[at].Dims)
	}
	t.Flush()
	u, sizing := in.store.Usage(), in.store.Sizing()
	fmt.Fprintf(&b, "  states: %d bytes for each sequence; %d slots now, at most %d, in chunks of %d then %d; %d bytes now, at most %d",
		in.store.RowBytes(), u.Rows, u.Total, sizing.Initial, sizing.Subsequent, u.Bytes, int64(u.Total)*in.store.RowBytes())
	in.log.Info(b.String())
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
	now := in.model.host.Clock
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
