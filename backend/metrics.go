package backend

// Metric is a number that an instance reports to the server, and the index of its
// description in [Metrics].
type Metric uint32

// The metrics of an instance. Those of one name with different reasons follow one another.
const (
	MetricActive Metric = iota
	MetricCapacity
	MetricUsedRatio
	MetricFree
	MetricStateBytes
	MetricChunks

	MetricStarted
	MetricRestarted
	MetricEnded
	MetricExpired
	MetricEvicted
	MetricDisplaced
	MetricRejectedFull
	MetricRejectedStartFailed
	MetricUnknown
	MetricPaddingLanes
	MetricFailedRuns
	MetricSaturated

	MetricSaved
	MetricSavedBytes
	MetricSaveFailures
	MetricFenced
	MetricUnsaved
	MetricUnsavedAge
	MetricRestored
	MetricRestoreMissing
	MetricRestoreDamaged
	MetricRestoreFailures
	MetricStoreCall

	MetricBatchSize
	MetricGather
	MetricRun
	MetricScatter
	MetricStep
	MetricGap

	metricCount
)

// MetricKind is what an update of a metric does.
type MetricKind uint8

// The kinds of metrics, with the numbers of TRITONSERVER_MetricKind.
const (
	Counter   MetricKind = iota // an update adds its value
	Gauge                       // an update is the new value
	Histogram                   // an update is one more observation
)

// MetricInfo describes a metric as Prometheus has it.
type MetricInfo struct {
	// Name of the family, with the unit at its end; several metrics share one
	// and differ in Reason.
	Name string
	Kind MetricKind
	Help string
	// Reason is the value of the label reason; empty: it has no such label.
	Reason string
	// Buckets are the upper bounds of a histogram's, ascending.
	Buckets []float64
}

var (
	// sizeBuckets count lanes.
	sizeBuckets = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}
	// workBuckets are seconds of work, from 5 µs to 2.5 s.
	workBuckets = []float64{5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 1e-1, 2.5e-1, 5e-1, 1, 2.5}
	// storeBuckets are seconds, from 100 µs to 10 s.
	storeBuckets = []float64{1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 1e-1, 2.5e-1, 5e-1, 1, 2.5, 5, 10}
	// gapBuckets are seconds between two requests of a client, from 5 ms to 10 minutes.
	gapBuckets = []float64{5e-3, 1e-2, 2e-2, 4e-2, 8e-2, 0.16, 0.32, 0.64, 1.25, 2.5, 5, 10, 30, 60, 300, 600}
)

const restoresHelp = "STARTs with stateful_resume. Reason restored: the sequence goes on with its saved state; missing: nothing was saved; damaged: a saved state was damaged, and counted as never saved; failed: the store failed, or the state does not fit the model"

const rejectedHelp = "STARTs that failed. Reason full: no slot was free; start_failed: the request could not be run"

// metrics is what Metrics returns; it is never changed.
var metrics = [metricCount]MetricInfo{
	MetricActive:     {Name: "stateful_sequences_active", Kind: Gauge, Help: "Sequences that have a state"},
	MetricCapacity:   {Name: "stateful_slots_capacity", Kind: Gauge, Help: "Sequences that can have a state at the same time"},
	MetricUsedRatio:  {Name: "stateful_slots_used_ratio", Kind: Gauge, Help: "Sequences that have a state, over those that can have one at the same time"},
	MetricFree:       {Name: "stateful_slots_free", Kind: Gauge, Help: "Slots that are allocated and not in use"},
	MetricStateBytes: {Name: "stateful_state_bytes", Kind: Gauge, Help: "Memory held for the states of sequences, used or not, in bytes"},
	MetricChunks:     {Name: "stateful_chunks", Kind: Gauge, Help: "Chunks of slots that are allocated"},

	MetricStarted:             {Name: "stateful_sequences_started_total", Help: "STARTs of sequences that had no state"},
	MetricRestarted:           {Name: "stateful_sequences_restarted_total", Help: "STARTs of sequences that had a state, which they lost"},
	MetricEnded:               {Name: "stateful_sequences_ended_total", Help: "Sequences that their client ended"},
	MetricExpired:             {Name: "stateful_sequences_expired_total", Help: "Sequences that lost their state because they idled for too long"},
	MetricEvicted:             {Name: "stateful_sequences_evicted_total", Help: "Sequences that lost their state to make room for others"},
	MetricDisplaced:           {Name: "stateful_sequences_displaced_total", Help: "Sequences that lost their state because the server gave their batch slot to another one"},
	MetricRejectedFull:        {Name: "stateful_sequences_rejected_total", Help: rejectedHelp, Reason: "full"},
	MetricRejectedStartFailed: {Name: "stateful_sequences_rejected_total", Help: rejectedHelp, Reason: "start_failed"},
	MetricUnknown:             {Name: "stateful_requests_unknown_total", Help: "Requests without START of a sequence that has no state: expired, evicted, displaced, rejected or never seen"},
	MetricPaddingLanes:        {Name: "stateful_padded_rows_total", Help: "Lanes that were added to runs to reach a batch size"},
	MetricFailedRuns:          {Name: "stateful_failed_runs_total", Help: "Runs of the model that failed, or whose states could not be gathered or committed"},
	MetricSaturated:           {Name: "stateful_saturated_elements_total", Help: "Elements of states that were clamped by store_states_as_fp16"},

	MetricSaved:           {Name: "stateful_saves_total", Help: "States of sequences that were saved in the store"},
	MetricSavedBytes:      {Name: "stateful_saved_bytes_total", Help: "Bytes of these states"},
	MetricSaveFailures:    {Name: "stateful_store_errors_total", Help: "Calls of the store that failed, of those that save"},
	MetricFenced:          {Name: "stateful_sequences_taken_over_total", Help: "Sequences that lost their state because another server took them over"},
	MetricUnsaved:         {Name: "stateful_sequences_unsaved", Kind: Gauge, Help: "Sequences with steps that are not saved"},
	MetricUnsavedAge:      {Name: "stateful_unsaved_seconds", Kind: Gauge, Help: "How long the oldest step waits that is not saved"},
	MetricRestored:        {Name: "stateful_restores_total", Help: restoresHelp, Reason: "restored"},
	MetricRestoreMissing:  {Name: "stateful_restores_total", Help: restoresHelp, Reason: "missing"},
	MetricRestoreDamaged:  {Name: "stateful_restores_total", Help: restoresHelp, Reason: "damaged"},
	MetricRestoreFailures: {Name: "stateful_restores_total", Help: restoresHelp, Reason: "failed"},
	MetricStoreCall:       {Name: "stateful_store_seconds", Kind: Histogram, Help: "Time of a call of the store, with encoding", Buckets: storeBuckets},

	MetricBatchSize: {Name: "stateful_batch_size", Kind: Histogram, Help: "Lanes of a run of the model, without padding", Buckets: sizeBuckets},
	MetricGather:    {Name: "stateful_gather_seconds", Kind: Histogram, Help: "Time to gather the states of a batch", Buckets: workBuckets},
	MetricRun:       {Name: "stateful_run_seconds", Kind: Histogram, Help: "Time that the model ran for a batch", Buckets: workBuckets},
	MetricScatter:   {Name: "stateful_scatter_seconds", Kind: Histogram, Help: "Time to commit the new states of a batch", Buckets: workBuckets},
	MetricStep:      {Name: "stateful_step_seconds", Kind: Histogram, Help: "Time from the beginning of a batch until all its responses were sent", Buckets: workBuckets},
	MetricGap:       {Name: "stateful_sequence_gap_seconds", Kind: Histogram, Help: "Time since the previous request of the same sequence", Buckets: gapBuckets},
}

// Metrics describes every metric, in the order of their numbers. The caller must
// not change it.
func Metrics() []MetricInfo { return metrics[:] }

// MetricLabels distinguish the instances of a server. Those that begin with GPU
// are empty, and then left out, for an instance on the CPU: as in Triton.
type MetricLabels struct {
	Model    string
	Version  uint64
	Instance string
	// GPUUUID is that of the whole GPU, as in Triton's own metrics of GPUs.
	GPUUUID string
	GPUName string
	GPUPart string // the UUID of the part, if the GPU is split
}

// labels are those of the instance's metrics.
func (in *Instance) labels() MetricLabels {
	labels := MetricLabels{Model: in.model.info.Name, Version: in.model.info.Version, Instance: in.name}
	if in.device == nil {
		return labels
	}
	d := in.device.Device()
	labels.GPUUUID, labels.GPUName = d.UUID, d.Name
	if d.Whole != "" {
		labels.GPUUUID, labels.GPUPart = d.Whole, d.UUID
	}
	return labels
}

// MetricSink takes the metrics of one instance to the server.
type MetricSink interface {
	// Record takes what changed, borrowed until it returns. One goroutine at a time calls
	// it, after each batch and now and then between them.
	Record([]MetricUpdate)
	// Close takes the metrics from the server, unless another instance has the
	// same labels.
	Close()
}

// MetricUpdate is a new number for a metric; what it means depends on its kind.
type MetricUpdate struct {
	Metric Metric
	Value  float64
}

// meter collects what changes while a batch is worked on, and reports it when all
// answers are out. Without a sink it does nothing.
type meter struct {
	sink    MetricSink // nil: metrics are off
	updates []MetricUpdate
	// sent are the totals of counters that the server has.
	sent                     [metricCount]uint64
	paddingLanes, failedRuns uint64
	seconds                  []float64 // kept for measureSaver
}

func (m *meter) observe(metric Metric, value float64) {
	if m.sink != nil {
		m.updates = append(m.updates, MetricUpdate{metric, value})
	}
}

// ran notes a run of that many lanes, of which requests use some.
func (m *meter) ran(used, lanes int) {
	m.paddingLanes += uint64(lanes - used)
	m.observe(MetricBatchSize, float64(used))
}

// count notes what was added to a total since it was last noted.
func (m *meter) count(metric Metric, total uint64) {
	if added := total - m.sent[metric]; added > 0 {
		m.sent[metric] = total
		m.observe(metric, float64(added))
	}
}

// recordMetrics adds the metrics of the store, and of the batch if it ran, and hands all
// of them over.
func (in *Instance) recordMetrics(e *execution) {
	m := &in.meter
	if m.sink == nil {
		return
	}
	if e.timing.ComputeEnd != 0 {
		m.observe(MetricGather, e.timings.gather.Seconds())
		m.observe(MetricRun, e.timings.run.Seconds())
		m.observe(MetricScatter, e.timings.scatter.Seconds())
		m.observe(MetricStep, (e.timings.last - e.timings.began).Seconds())
	}
	in.measureStore()
	m.sink.Record(m.updates)
	m.updates = m.updates[:0]
}

// measureStore notes gauges also if they have not changed: while a model is reloaded, its
// old instance sets the same ones.
func (in *Instance) measureStore() {
	m, u, c := &in.meter, in.store.Usage(), in.store.Counters()
	m.observe(MetricActive, float64(u.Live))
	m.observe(MetricCapacity, float64(u.Total))
	m.observe(MetricUsedRatio, float64(u.Live)/float64(max(u.Total, 1)))
	m.observe(MetricFree, float64(u.Free))
	m.observe(MetricStateBytes, float64(u.Bytes))
	m.observe(MetricChunks, float64(u.Chunks))
	m.count(MetricStarted, c.Started)
	m.count(MetricRestarted, c.Restarted)
	m.count(MetricEnded, c.Ended)
	m.count(MetricExpired, c.Expired)
	m.count(MetricEvicted, c.Evicted)
	m.count(MetricDisplaced, c.Displaced)
	m.count(MetricRejectedFull, c.RejectedFull)
	m.count(MetricRejectedStartFailed, c.StartFailures)
	m.count(MetricUnknown, c.Unknown)
	m.count(MetricPaddingLanes, m.paddingLanes)
	m.count(MetricFailedRuns, m.failedRuns)
	m.count(MetricSaturated, c.Saturated+in.measureSaver())
}

// openMeter begins to report, if the server takes metrics.
func (in *Instance) openMeter() {
	if open := in.server().Metrics; open != nil {
		in.meter.sink = open(in.labels())
		in.recordMetrics(&in.work) // what there is before the first batch
	}
}

// close takes the instance's metrics from the server.
func (m *meter) close() {
	if m.sink != nil {
		m.sink.Close()
		m.sink = nil
	}
}
