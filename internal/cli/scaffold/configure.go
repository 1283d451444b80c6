package scaffold

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tritonstateful/backend/plan"
	"tritonstateful/internal/cli/offline"
	"tritonstateful/internal/modelconfig"
)

// The schedulers.
const (
	Oldest = "oldest"
	Direct = "direct"
	Free   = "free" // the dynamic batcher, which needs no routing
)

// Schedulers are the words for --scheduler.
var Schedulers = []string{Oldest, Direct, Free}

// slotRatio is the parameter that says how many of max_candidate_sequences have a slot.
const slotRatio = "max_candidate_sequence_use_ratio"

// idle is max_sequence_idle_microseconds: Triton's default of a second ends sequences of most real clients.
const idle = 60_000_000

// Options are what a configuration is to be like.
type Options struct {
	Scheduler string // one of Schedulers; it counts where the configuration has none
	// Short leaves out what the backend fills in at load, and the comments.
	Short bool
}

// Choose adds to a configuration without a scheduler what asks for one, before the model is looked at again.
func Choose(f *offline.Files, scheduler string) {
	if scheduler != Free || f.Given.GetSchedulingChoice() != nil {
		return
	}
	set(f.Given, "sequences", "free")
}

// set sets a parameter, unless it is given.
func set(config *modelconfig.ModelConfig, key, value string) {
	if config.Parameters == nil {
		config.Parameters = map[string]*modelconfig.ModelParameter{}
	}
	if _, given := config.Parameters[key]; !given {
		config.Parameters[key] = &modelconfig.ModelParameter{StringValue: value}
	}
}

// Configure writes the config.pbtxt of a model that has a plan.
func Configure(m *offline.Model, o Options) (string, error) {
	full, err := modelconfig.FromJSON(m.JSON)
	if err != nil {
		return "", err
	}
	if m.Given.GetSchedulingChoice() == nil && m.Config.Sequence != nil {
		schedule(full, o.Scheduler)
	}
	if !m.Sourced() {
		declarePairs(full, m)
	}
	if _, pairs := full.Parameters["state_pairs"]; pairs && m.Given.GetSchedulingChoice() == nil && full.GetSequenceBatching().GetOldest() != nil {
		set(full, slotRatio, "1") // with state_pairs, the default is less
	}
	if o.Short {
		return short(full, m), nil
	}
	if len(full.InstanceGroup) == 0 {
		full.InstanceGroup = []*modelconfig.ModelInstanceGroup{{Kind: modelconfig.ModelInstanceGroup_KIND_CPU}}
	}
	if m.Plan.Free {
		set(full, "max_sequences", strconv.Itoa(m.Candidates()))
		set(full, "sequence_idle_ms", strconv.FormatInt(m.Parameters.Free.Idle.Milliseconds(), 10))
	}
	return modelconfig.Format(full, comments(full, m)), nil
}

// schedule chooses the scheduler. The states that were filled in for it are declared by state_pairs instead: Triton would
// allocate memory of its own for those that are listed, for each sequence, which the backend does not use.
func schedule(full *modelconfig.ModelConfig, scheduler string) {
	batching := &modelconfig.ModelSequenceBatching{MaxSequenceIdleMicroseconds: idle}
	switch before := full.GetSequenceBatching().GetOldest(); {
	case scheduler == Direct:
		batching.StrategyChoice = &modelconfig.ModelSequenceBatching_Direct{Direct: &modelconfig.ModelSequenceBatching_StrategyDirect{}}
	default:
		batching.StrategyChoice = &modelconfig.ModelSequenceBatching_Oldest{Oldest: before}
	}
	full.SchedulingChoice = &modelconfig.ModelConfig_SequenceBatching{SequenceBatching: batching}
}

// declarePairs writes down the states that were guessed from names.
func declarePairs(full *modelconfig.ModelConfig, m *offline.Model) {
	var pairs []string
	for _, states := range [][]plan.State{m.Plan.States, m.Plan.Varying} {
		for i := range states {
			pairs = append(pairs, fmt.Sprintf("<<<%s, %s>>>", states[i].Input, states[i].Output))
		}
	}
	if len(pairs) == 0 {
		return
	}
	set(full, "state_pairs", strings.Join(pairs, " "))
}

// short is a configuration without what the backend fills in.
func short(full *modelconfig.ModelConfig, m *offline.Model) string {
	if len(m.Given.Input) == 0 {
		full.Input = nil
	}
	if len(m.Given.Output) == 0 {
		full.Output = nil
	}
	if m.Given.MaxBatchSize == 0 && len(m.Given.Input)+len(m.Given.Output) == 0 {
		full.MaxBatchSize = 0
	}
	if !slices.ContainsFunc(m.Filled, func(line string) bool { return strings.HasPrefix(line, "guessed from the names") }) {
		return modelconfig.Format(full, nil)
	}
	if _, given := m.Given.Parameters["state_pairs"]; !given {
		delete(full.Parameters, "state_pairs")
		if _, given := m.Given.Parameters[slotRatio]; !given {
			delete(full.Parameters, slotRatio) // without state_pairs, it is the default
		}
	}
	return modelconfig.Format(full, nil)
}

// comments say why.
func comments(full *modelconfig.ModelConfig, m *offline.Model) modelconfig.Comments {
	c := modelconfig.Comments{
		"name":           "Written by tritonstateful init. What is left out or changed here, the backend checks at load.",
		"max_batch_size": batchComment(m),
		"instance_group": "KIND_GPU runs the model on a GPU, and keeps the states there; count: N makes N instances.",
	}
	var states []string
	position := map[string]int{}
	for _, t := range m.Tensors() {
		switch t.Role {
		case offline.RoleInput, offline.RoleOutput:
			c[fmt.Sprintf("%s[%d]", t.Role, position[t.Role])] = fmt.Sprintf("the model has %s %s%s", t.Type, t.NamedShape(), axisComment(&t))
			position[t.Role]++
		case offline.RoleState:
			states = append(states, fmt.Sprintf("  %s -> %s: %s %s, %s", t.Name, t.Output, t.Type, t.NamedShape(), t.Why()))
		}
	}
	if len(states) > 0 {
		at := `parameters["state_pairs"]`
		if _, has := full.Parameters["state_pairs"]; !has {
			at = "sequence_batching"
		}
		c[at] = "The states, which clients neither send nor get:\n" + strings.Join(states, "\n")
	}
	if m.Plan.Free {
		c["dynamic_batching"] = "Free sequences: the backend alone begins and ends them, so that clients can go on at another server."
		c[`parameters["max_sequences"]`] = "How many sequences there are at a time." + memoryComment(m, int64(m.Candidates()))
		c[`parameters["sequence_idle_ms"]`] = "A sequence without a request for this long is over."
		c["instance_group"] = "KIND_GPU runs the model on a GPU, and keeps the states there. All instances of free sequences must be on one device."
	}
	if batching := full.GetSequenceBatching(); batching != nil {
		c[`parameters["max_candidate_sequence_use_ratio"]`] = "A slot for each of max_candidate_sequences. With state_pairs, the default is 0.9, as in NVIDIA's backend."
		c["sequence_batching.max_sequence_idle_microseconds"] = "A sequence without a request for this long is over."
		c["sequence_batching.oldest"] = "How many sequences one instance has at a time; more wait." + memoryComment(m, int64(batching.GetOldest().GetMaxCandidateSequences()))
		c["sequence_batching.direct"] = "Each of max_batch_size sequences has a place of its own in the batch; more wait." + memoryComment(m, int64(full.MaxBatchSize))
	}
	return c
}

func batchComment(m *offline.Model) string {
	if m.Plan.MaxLanes == 1 && m.Plan.WhyOneLane != "" {
		return "Requests run one at a time: " + m.Plan.WhyOneLane + "."
	}
	return "How many requests may share a run of the model."
}

func axisComment(t *offline.Tensor) string {
	if t.BatchAxis == nil {
		return ""
	}
	return fmt.Sprintf("; batch axis %d: %s", *t.BatchAxis, t.AxisFrom)
}

// memoryComment is what the states of that many sequences take.
func memoryComment(m *offline.Model, sequences int64) string {
	var bytes int64
	for i := range m.Plan.States {
		bytes += m.Plan.States[i].LaneBytes()
	}
	if bytes == 0 || sequences == 0 {
		return ""
	}
	return fmt.Sprintf(" Their states take %d bytes each, up to %d in all.", bytes, bytes*sequences)
}
