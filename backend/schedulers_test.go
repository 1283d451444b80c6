package backend

import (
	"fmt"
	"strings"
	"testing"

	"tritonstateful/backend/config"
	"tritonstateful/internal/status"
)

// schedulers are those that do not say which lane a sequence has; what a test shows of one is to
// hold with all of them. The direct scheduler does; see [direct]. An edit comes after all others.
var schedulers = []struct {
	name string
	edit func(*setup)
}{{"oldest", func(*setup) {}}, {"free", free}}

// eachScheduler runs a test with each of schedulers.
func eachScheduler(t *testing.T, test func(t *testing.T, on func(*setup))) {
	for _, s := range schedulers {
		t.Run(s.name, func(t *testing.T) { test(t, s.edit) })
	}
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
