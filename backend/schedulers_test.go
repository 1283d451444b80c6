package backend

import (
	"fmt"
	"strings"
	"testing"

	"tritonstateful/backend/config"
	"tritonstateful/internal/status"
)

// scheduler is a scheduler by name, and the edit that has it in place of oldest, which comes after
// all others.
type scheduler struct {
	name string
	edit func(*setup)
}

// queueing are the schedulers that do not say which lane a sequence has: any batch of requests can come.
var queueing = []scheduler{{"oldest", func(*setup) {}}, {"free", free}}

// eachQueueing runs a test with each of queueing; what direct has in its place is in direct_test.go.
func eachQueueing(t *testing.T, test func(t *testing.T, on func(*setup))) {
	for _, s := range queueing {
		t.Run(s.name, func(t *testing.T) { test(t, s.edit) })
	}
}

// eachScheduler runs a test with each scheduler. Its batches must be some that direct can send: a
// sequence stays at its index, and no other one STARTs there.
func eachScheduler(t *testing.T, test func(t *testing.T, on func(*setup))) {
	eachQueueing(t, test)
	t.Run("direct", func(t *testing.T) { test(t, directly) })
}

// directly has the direct scheduler in place of oldest.
func directly(s *setup) {
	s.config.Sequence.Oldest = nil
	delete(s.config.Parameters, "max_candidate_sequence_use_ratio")
}

// free has the dynamic batcher in place of sequence_batching, and says by parameters what that
// said.
func free(s *setup) {
	c := s.config
	sequence := c.Sequence
	c.Sequence, c.Dynamic = nil, &config.DynamicConfig{PreferredBatchSizes: sequence.Oldest.PreferredBatchSizes, MaxQueueDelayMicroseconds: sequence.Oldest.MaxQueueDelayMicroseconds}
	given := func(name, value string) { c.Parameters[name] = config.Value{String: value} }
	given("sequences", "free")
	slots := sequence.Oldest.MaxCandidateSequences
	if ratio := c.Parameters["max_candidate_sequence_use_ratio"].String; ratio != "1" {
		slots = int(float32(slots) * 0.9)
	}
	delete(c.Parameters, "max_candidate_sequence_use_ratio")
	given("max_sequences", fmt.Sprint(slots))
	given("sequence_idle_ms", fmt.Sprint(sequence.MaxIdleMicroseconds/1000))
	words := map[string]string{config.ControlStart: "start", config.ControlReady: "ready"}
	derived := c.Parameters["derived_inputs"].String
	for i := range sequence.ControlInputs {
		// A control that the model has no input for is no error, other than a derived input.
		if in := &sequence.ControlInputs[i]; in.Name == resetName && (s.model == nil || s.model.hasReset()) {
			derived = strings.TrimPrefix(fmt.Sprintf("%s; %s = %s", derived, in.Name, words[in.Effective().Kind]), "; ")
		}
	}
	if derived != "" {
		given("derived_inputs", derived)
	}
}

// scheduled is a configuration with a scheduler.
func scheduled(c *config.Config, on func(*setup)) *config.Config {
	on(&setup{config: c})
	return c
}

// unknown is the code of the answer to a request whose sequence is not known.
func (s *server) unknown() status.Code {
	if s.in.free {
		return status.NotFound
	}
	return status.InvalidArg
}

// endAgain ends a free sequence whose END failed. Others have ended.
func (s *server) endAgain(id any) {
	s.t.Helper()
	if s.in.free {
		s.batch(endOf(id)).ok()
	}
}

// order is the order in which requests of a batch run, as rounds of them.
func order(in *Instance) []func(start bool) bool {
	if in.free {
		return []func(bool) bool{func(bool) bool { return true }}
	}
	return []func(bool) bool{func(start bool) bool { return !start }, func(start bool) bool { return start }}
}
