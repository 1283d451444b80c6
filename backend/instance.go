package backend

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"

	"tritonstateful/backend/checkpoint"
	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/planner"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// Instance is a model on one device, with the states of its sequences. Execute runs one batch at
// a time, on whichever goroutines it is called; several instances of the server can be one Instance
// (NewInstance).
type Instance struct {
	model  *Model
	log    *slog.Logger
	name   string
	runner onnx.Runner
	device onnx.DeviceRunner // the runner, if it is on a GPU
	shared bool              // other instances may use the runner's session, too
	plan   *plan.Plan
	store  *statebuffer.Store
	ioSets []*ioSet // by the number of lanes, made when first needed
	io     *ioBuffers
	// sequences: requests belong to sequences. keeps: something of a sequence is kept
	// between its requests. direct: the scheduler is the direct one. free: the scheduler is the
	// dynamic batcher, so that sequences are free.
	sequences, keeps, direct, free bool
	// implicit: the first request of a free sequence begins it, without START. onMiss: the store
	// is asked for the state of a sequence that has none here.
	implicit, onMiss bool
	warmUps          int // requests of model_warmup that are still to come, with free sequences
	work             execution
	arranger         arranger
	quarantine       quarantine
	empty            []Output // the answer to an END that is not inferred
	buckets          []int    // the batch sizes that runs are rounded up to, ascending; nil for none
	splitter         splitter
	answersWait      bool       // the answers of a run can wait
	waiting          [][]Output // of runs whose answers wait
	periodic         *periodicLog
	overlaps         overlaps
	verbosity        verbosity
	meter            meter
	ticker           ticker
	saturated        bool              // reportSaturation has warned
	runs             uint64            // number of the last run
	saver            *checkpoint.Saver // nil: states are not saved
	resuming         map[statebuffer.Key]*resuming
	// separate is why sequences of unequal length do not share a run, although the model
	// has a mask. Of each of plan.Masks, grows is what a step appends to the states that it
	// covers, if it names no input, and padded is the greatest length, with what a step
	// brings, up to which unequal lengths share a run.
	separate      string
	grows, padded []int64
}

func newInstance(m *Model, info InstanceInfo) (*Instance, error) {
	in := &Instance{model: m, name: info.Name, log: m.log.With("instance", info.Name)}
	in.verbosity = newVerbosity(in.log, m.params)
	in.periodic = newPeriodicLog(m.params, m.server.Clock)
	provider, err := m.params.Provider(info.Kind)
	if err := in.load(provider, info, errors.Join(m.faults, err)); err != nil {
		in.release()
		for _, name := range m.params.Misspelt {
			err = fmt.Errorf("%w\n%s", err, name)
		}
		return nil, err
	}
	in.openMeter()
	for _, note := range in.plan.Notes {
		in.log.Info(note)
	}
	for _, warning := range in.plan.Warnings {
		in.log.Warn(warning)
	}
	in.reportSharedScale()
	in.reportLoad(provider)
	in.reportMemory()
	in.startTicks() // last, because a tick uses everything
	return in, nil
}

// load makes everything that Close frees. With faults it fails, but not before it
// has looked at the model: one attempt to load shows everything that is wrong.
func (in *Instance) load(provider onnx.Provider, info InstanceInfo, faults error) (err error) {
	m := in.model
	options, refused := m.sessionOf(provider, info)
	faults = errors.Join(faults, refused)
	if err := checkArenas(&options); err != nil {
		faults, options.Run = errors.Join(faults, err), nil // else every run of the proofs would fail
	}
	if m.path != "" && refused == nil {
		in.runner, in.shared, err = m.openRunner(options, info.HostPolicy)
		in.device, _ = in.runner.(onnx.DeviceRunner)
	}
	if in.runner != nil && m.params.Understood(config.TensorParameters...) {
		in.plan, err = m.planFor(in.runner, options.Path)
		err = planner.WithAdvice(err, planner.MergedDecoderAdvice(m.config, m.params, in.runner.Signature()))
	}
	if err := errors.Join(faults, err, m.checkPlan(in.plan)); err != nil {
		return err
	}
	if err := in.allocate(); err != nil {
		return err
	}
	in.proveMasks()
	if err := in.warmUp(); err != nil {
		return err
	}
	in.store.Discard()
	return in.openSaver()
}

// allocate makes everything else than the session and the plan.
func (in *Instance) allocate() (err error) {
	m := in.model
	in.free = in.plan.Free
	in.implicit = in.free && m.params.Free.Begin == config.BeginImplicit
	in.sequences = m.config.Sequence != nil || in.free
	in.keeps = in.sequences && !in.plan.KeepsNothing()
	in.direct = m.config.Direct()
	in.warmUps = m.config.WarmUpRequests()
	if in.store, err = in.newStore(); err != nil {
		return err
	}
	if in.io, err = newIOBuffers(in.plan, in.ioMemory()); err != nil {
		return err
	}
	in.ioSets = make([]*ioSet, in.plan.MaxLanes+1)
	in.buckets = m.buckets()
	in.answersWait = canWait(in.plan)
	in.splitter = newSplitter(m.params.Padding == config.PadAuto && !in.plan.Varies && in.store.InPlace() && in.store.SlotBytes() >= splitFrom)
	in.empty = in.emptyAnswers()
	in.work.in, in.work.queue, in.work.spreads = in, newQueue(), make([]spread, len(in.plan.Masks))
	in.grows, in.padded = make([]int64, len(in.plan.Masks)), slices.Repeat([]int64{math.MaxInt64}, len(in.plan.Masks))
	in.overlaps.quiet.init(m.config.QueueDelay())
	return nil
}

// emptyAnswers are what an END that is not inferred gets: every output with one
// element, zero.
func (in *Instance) emptyAnswers() []Output {
	outputs := in.plan.Outputs
	answers := make([]Output, len(outputs))
	for i := range outputs {
		size := int64(outputs[i].DType.Size())
		if outputs[i].DType == tensor.Bytes {
			size = 4 // an empty string is its length
		}
		answers[i] = Output{
			Tensor: in.io.zero.Bytes[:size], Layout: statebuffer.Layout{Pieces: 1, PieceBytes: size}, Lanes: 1,
			Shape: slices.Repeat(tensor.Shape{1}, len(outputs[i].Answer)),
		}
	}
	return answers
}

func (in *Instance) newStore() (store *statebuffer.Store, err error) {
	params, sizing := in.model.params, in.model.sizing
	switch {
	case in.free && in.keeps:
		if sizing, err = params.FreeSizing(in.model.config); err != nil {
			return nil, err
		}
	case !in.keeps:
		sizing = statebuffer.Sizing{MaxChunks: 1} // no slots, and so no limit on sequences
	}
	states := make([]statebuffer.State, len(in.plan.States))
	for i := range states {
		state := &in.plan.States[i]
		states[i] = statebuffer.State{Name: state.Input, DType: state.DType, Shape: state.Dims, Layout: state.Layout, Convert: params.Conversion(state.DType), Initial: state.Value}
	}
	varying := make([]statebuffer.Varying, len(in.plan.Varying))
	for i := range varying {
		state := &in.plan.Varying[i]
		varying[i] = statebuffer.Varying{
			Name: state.Input, DType: state.DType, Axis: state.Axis, InitialShape: state.Shape, Initial: state.Value, MaxBytes: params.MaxStateBytes,
			Update: state.Update, AppendAxis: state.AppendAxis, LeftPadded: state.TimePadded, PadAxis: state.TimeAxis,
		}
	}
	options := statebuffer.Options{
		Memory: in.runner.Memory(), States: states, Varying: varying, Sizing: sizing, MaxLanes: in.plan.MaxLanes,
		Limits: in.limits(sizing.Total()),
	}
	if err := in.checkCapacity(&options); err != nil {
		return nil, err
	}
	store, err = statebuffer.NewStore(options)
	if first := (*statebuffer.FirstChunkError)(nil); errors.As(err, &first) {
		return nil, status.Errorf(status.InvalidArg, "the slots for sequences: %w", err)
	}
	if err != nil {
		return nil, status.Errorf(status.Internal, "allocating the states of %d sequences: %w; use fewer instances or a smaller %s", sizing.Initial, err, options.Limits.Field)
	}
	return store, nil
}

// buckets are the batch sizes that runs are rounded up to.
func (m *Model) buckets() []int {
	switch m.params.Padding {
	case config.PadPreferred:
		sizes := append(slices.Clone(m.config.PreferredBatchSizes()), m.config.MaxBatchSize)
		slices.Sort(sizes)
		return slices.Compact(sizes)
	case config.PadMax:
		return []int{m.config.MaxBatchSize}
	default:
		return nil
	}
}

// lanesWithPadding is how many lanes a run of n has: n rounded up to a bucket.
func (in *Instance) lanesWithPadding(n int) int {
	for _, size := range in.buckets {
		if size >= n && size <= in.plan.MaxLanes {
			return size
		}
	}
	return n
}

// warmUp runs the model once with each batch size that the configuration names,
// so that no client waits for what ONNX Runtime does in a first run. One lane may have run in
// the proof. A model whose shapes vary is not run, because the shapes that it can take are not
// known.
func (in *Instance) warmUp() error {
	if in.plan.Varies {
		if in.device != nil && in.model.params.CUDAGraph {
			in.log.Warn("enable_cuda_graph has no effect: more than the batch size varies in this model, and a CUDA graph has fixed shapes")
		}
		return nil
	}
	sizes := append([]int{in.plan.MaxLanes, 1}, in.model.config.PreferredBatchSizes()...)
	for i, n := range sizes {
		sizes[i] = in.lanesWithPadding(max(1, min(n, in.plan.MaxLanes)))
	}
	slices.Sort(sizes)
	for _, n := range slices.Compact(sizes) {
		if n == 1 && in.plan.MaxLanes > 1 && in.model.hasRunAlone(in.runner) {
			continue
		}
		if err := in.warmUpWith(n); err != nil {
			return status.Errorf(status.CodeOf(err), "warming up with a batch of %d: %w; the batch was assumed at %s; if it is elsewhere, set the parameter batch_axes", n, err, in.plan.BatchAxes())
		}
	}
	return nil
}

func (in *Instance) warmUpWith(lanes int) error {
	s, err := in.ioSetFor(lanes, nil)
	if err != nil {
		return err
	}
	step, err := in.store.Gather(make([]statebuffer.Lane, lanes), lanes)
	if err != nil {
		return err
	}
	defer in.store.Abort(step, 0)
	s.bindStates(in.plan, step)
	in.work.ioSet = s
	in.work.measureLengths(nil)
	if err := in.work.writeGenerated(); err != nil {
		return err
	}
	run := func(inputs, outputs []onnx.Tensor) error { return onnx.Probe(in.runner, inputs, outputs) }
	if in.device != nil {
		run = in.device.WarmUp
	}
	if err := run(s.inputs, s.outputs); err != nil {
		if in.putOnes(s); run(s.inputs, s.outputs) == nil {
			return nil
		}
		return status.Errorf(status.InvalidArg, "the model fails to run: %w", err)
	}
	return nil
}

// putOnes fills the inputs with ones. A model may fail on zeros that no client sends, such
// as a length of 0, and must load all the same. Each batch overwrites them.
func (in *Instance) putOnes(s *ioSet) {
	for i := range in.plan.Inputs {
		one, err := tensor.ParseElement("1", in.plan.Inputs[i].DType)
		if err != nil {
			continue
		}
		for to := s.in[i].Bytes; len(to) > 0; to = to[len(one):] {
			copy(to, one)
		}
	}
}

// TokenInput names one of the server's own states, by which requests of one ID can be
// distinguished; see Request.Token. It is empty where there is none, and where the batch slot
// distinguishes them.
func (in *Instance) TokenInput() string { return in.model.config.TokenInput() }

// TakesParameters reports whether requests may have parameters of this backend.
func (in *Instance) TakesParameters() bool { return in.keeps }

// Inputs are the tensors that requests bring, in the order of Request.Inputs.
func (in *Instance) Inputs() []onnx.IOTensor { return ioTensors(in.plan.Inputs) }

// Outputs are the tensors that answers carry, in the order of Batch.Answer.
func (in *Instance) Outputs() []onnx.IOTensor { return ioTensors(in.plan.Outputs) }

func ioTensors(of []plan.IO) []onnx.IOTensor {
	all := make([]onnx.IOTensor, len(of))
	for i := range of {
		all[i] = of[i].IOTensor
	}
	return all
}

func (in *Instance) server() *Server { return &in.model.server }

// LargestBatch is the number of requests that the server puts into a batch at most.
func (in *Instance) LargestBatch() int { return max(1, in.model.config.MaxBatchSize) }

// StringIDs reports whether the model's correlation IDs are strings.
func (in *Instance) StringIDs() bool { return in.model.StringIDs() }

// Close frees the instance's memory and session, if NewInstance has returned it once more often
// than it was closed. No batch of who closes it may be running.
func (in *Instance) Close() {
	if !in.model.joined.leave(in) {
		return
	}
	in.release()
	in.server().trim()
}

// release frees the same, and leaves what the allocator keeps of it for a load that is under
// way.
func (in *Instance) release() {
	in.ticker.stop()
	in.closeSaver()
	in.meter.close()
	if in.store != nil {
		in.overlaps.close(in)
		in.store.Close()
		in.store = nil
	}
	if in.runner != nil {
		if in.io != nil {
			in.io.free()
		}
		in.model.closeRunner(in.runner)
		in.runner = nil
		if in.model.info.ReportMemory != nil {
			in.model.reportMemory(in, nil)
		}
	}
}

// maintain grows or shrinks the store and reports, between batches, when all answers are
// out.
func (in *Instance) maintain(e *execution) {
	now := in.server().Clock
	in.store.EndBatch(e.timings.last)
	change, err := in.store.Maintain(now) // also if all were refused for want of slots
	switch u := in.store.Usage(); {
	case err != nil:
		in.log.Warn("could not allocate more slots, trying again later", "slots", u.Slots, "error", err)
	case change.Grown && in.verbosity.on(in.verbosity.info, slog.LevelInfo):
		in.log.Info("allocated a chunk of slots", "chunks", u.Chunks, "slots", u.Slots, "free", u.Free, "took", change.Took)
	case change.Shrunk && in.verbosity.on(in.verbosity.info, slog.LevelInfo):
		in.log.Info("released a chunk of slots", "chunks", u.Chunks, "slots", u.Slots, "free", u.Free, "took", change.Took)
	}
	if e.succeeded > 0 {
		in.reportSaturation()
		in.periodic.batch(&e.timings, change.Took, now(), in.log)
	}
	in.recordMetrics(e)
	if in.saver != nil && in.saver.Busy() {
		in.saver.Kick()
	}
}
