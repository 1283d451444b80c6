package capacity

import (
	"fmt"
	"strconv"

	"tritonstateful/internal/cli/offline"
	"tritonstateful/internal/modelconfig"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// Tools are what a measurement needs of ONNX Runtime.
type Tools struct {
	Open onnx.OpenRunner
	Trim func() // gives memory that is free back to the system
}

// Options are what is planned for.
type Options struct {
	Sequences int     // at a time, on one instance; 0: as many as the configuration has slots
	Steps     int     // requests of each, after which memory is measured
	Rate      float64 // requests per second of each sequence
	Extent    int64   // see parity.Options
	Data      []string
}

// A Plan is the result. All sizes are in bytes. The names of the fields in JSON are an interface: docs/command-plan.md.
type Plan struct {
	Sequences int     `json:"sequences"`
	Steps     int     `json:"steps"`
	Rate      float64 `json:"requests_per_second_of_a_sequence"`
	// Missing is the line that gives the configuration as many slots, or empty.
	Missing string `json:"missing,omitempty"`
	// Session is what ONNX Runtime has: weights, and its arena after runs with the largest batch.
	Session int64 `json:"session_bytes"`
	// Batch is the memory of inputs, outputs and states of the largest batch.
	LargestBatch int   `json:"largest_batch"`
	Batch        int64 `json:"batch_bytes"`
	// Slots are allocated as they are, InitialSlots at load and ChunkSlots at a time later. Memory of a slot is resident
	// once a sequence has used it.
	Slots        int   `json:"slots"`
	InitialSlots int   `json:"initial_slots"`
	ChunkSlots   int   `json:"chunk_slots"`
	SlotBytes    int64 `json:"slot_bytes"`
	// StateBytes is what the states of a sequence have after the steps: those of its slot, and those that vary.
	StateBytes int64 `json:"state_bytes"`
	// Measured is how many sequences ran, and SequenceBytes what one took of the resident memory; 0 if too few ran to tell.
	Measured      int   `json:"measured_sequences"`
	SequenceBytes int64 `json:"sequence_bytes"`
	// Resident is by how much the resident memory of a server grows with the model and the sequences.
	Loaded   int64 `json:"resident_bytes_after_load"`
	Resident int64 `json:"resident_bytes"`
	// Saved is the size of a saved state, and Traffic what the store writes; they are missing without states.
	Saved   int64    `json:"saved_bytes"`
	Traffic []Policy `json:"store_traffic"`
}

// A Policy is a value of the parameter checkpoint, and what a store has to write with it.
type Policy struct {
	Checkpoint     string `json:"checkpoint"`
	BytesPerSecond int64  `json:"bytes_per_second"`
	SavesPerSecond int64  `json:"saves_per_second"`
}

// policies are those that are shown: how often a sequence is saved each second, at a rate of requests.
var policies = []struct {
	checkpoint string
	saves      func(rate float64) float64
}{
	{"interval=1000", func(rate float64) float64 { return min(rate, 1) }},
	{"interval=10000", func(rate float64) float64 { return min(rate, 0.1) }},
	{"steps=10", func(rate float64) float64 { return rate / 10 }},
	{"sync", func(rate float64) float64 { return rate }},
}

// traffic is what the store writes.
func (p *Plan) traffic() {
	p.Traffic = []Policy{}
	if p.Saved == 0 {
		return
	}
	for _, policy := range policies {
		saves := policy.saves(p.Rate) * float64(p.Sequences)
		p.Traffic = append(p.Traffic, Policy{policy.checkpoint, int64(saves * float64(p.Saved)), int64(saves + 0.5)})
	}
}

// slots computes the slots by the configuration, and changes it if there are too few for the sequences.
func (p *Plan) slots(m *offline.Model, full *modelconfig.ModelConfig) error {
	sizing, err := sizingOf(m)
	if err != nil {
		return err
	}
	if p.Sequences == 0 {
		p.Sequences = sizing.Total()
	}
	// A ratio and chunks that are not full leave fewer slots than the field says.
	for n := p.Sequences; sizing.Total() < p.Sequences && n < 4*p.Sequences; n += max(1, p.Sequences-sizing.Total()) {
		if err := p.raise(m, full, n); err != nil {
			return err
		}
		changed := *m
		changed.JSON = modelconfig.JSON(full)
		if err := changed.Reread(); err != nil {
			return err
		}
		if sizing, err = sizingOf(&changed); err != nil {
			return err
		}
	}
	if sizing.Total() < p.Sequences {
		return fmt.Errorf("the buffer sizes and max_candidate_sequence_use_ratio leave %d slots: want at most as many --sequences, or other values", sizing.Total())
	}
	p.Slots, p.InitialSlots, p.ChunkSlots = sizing.Total(), sizing.Initial, sizing.Subsequent
	if !sizing.Lazy() {
		p.ChunkSlots = 0
	}
	for i := range m.Plan.States {
		s := &m.Plan.States[i]
		bytes := s.LaneBytes()
		if m.Parameters.HalfStates && s.DType == tensor.FP32 {
			bytes /= 2
		}
		p.SlotBytes += bytes
	}
	return nil
}

// raise changes the number of sequences that the configuration has.
func (p *Plan) raise(m *offline.Model, full *modelconfig.ModelConfig, n int) error {
	oldest := full.GetSequenceBatching().GetOldest()
	switch {
	case oldest != nil:
		p.Missing = fmt.Sprintf("max_candidate_sequences: %d", n)
		oldest.MaxCandidateSequences = int32(n)
	case m.Plan.Free:
		p.Missing = fmt.Sprintf("parameters { key: 'max_sequences' value { string_value: '%d' } }", n)
		if full.Parameters == nil {
			full.Parameters = map[string]*modelconfig.ModelParameter{}
		}
		full.Parameters["max_sequences"] = &modelconfig.ModelParameter{StringValue: strconv.Itoa(n)}
	default:
		return fmt.Errorf("the direct scheduler has %d batch slots, max_batch_size: want at most as many --sequences, or the oldest scheduler", m.Config.Candidates())
	}
	return nil
}

func sizingOf(m *offline.Model) (statebuffer.Sizing, error) {
	if m.Plan.Free {
		return m.Parameters.FreeSizing(m.Config)
	}
	return statebuffer.NewSizing(m.Config.Candidates(), max(m.Config.MaxBatchSize, 1), m.Parameters.SlotRatio(m.Config), m.Parameters.Lazy)
}
