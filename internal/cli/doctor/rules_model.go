package doctor

import (
	"fmt"
	"slices"
	"strings"
)

const (
	needsModels = "the URL of a server, or a folder with config.pbtxt files"
	idleDefault = 1_000_000 // microseconds, of Triton
)

// eachModel applies a rule to every model of this backend.
func eachModel(s *Subject, check func(m *Model) *Finding) (found []Finding, unseen string) {
	seen := false
	for i := range s.Models {
		m := &s.Models[i]
		if !m.ours() {
			continue
		}
		seen = true
		if f := check(m); f != nil {
			f.Where = m.Where
			found = append(found, *f)
		}
	}
	if !seen {
		return nil, needsModels
	}
	return found, ""
}

// idleLimit: Triton forgets a sequence after a second, and refuses its next request.
func idleLimit(s *Subject) ([]Finding, string) {
	return eachModel(s, func(m *Model) *Finding {
		if m.Sequence == nil || m.Sequence.IdleMicroseconds > idleDefault {
			return nil
		}
		seen := "max_sequence_idle_microseconds is not given, and Triton's default is one second"
		switch idle := m.Sequence.IdleMicroseconds; {
		case idle == idleDefault:
			seen = "max_sequence_idle_microseconds is 1000000, one second, which is Triton's default"
		case idle != 0:
			seen = fmt.Sprintf("max_sequence_idle_microseconds is %d, less than one second", idle)
		}
		return &Finding{
			Severity: Problem, Evidence: seen + "; a request that comes later is refused (must specify the START flag)",
			Remedy: "sequence_batching { max_sequence_idle_microseconds: 60000000 }, or the longest pause of your clients",
		}
	})
}

// numericCorrID: a server before 25.01 writes the string over the eight bytes of a number.
func numericCorrID(s *Subject) ([]Finding, string) {
	known := s.versions()
	if len(known) > 0 && !slices.ContainsFunc(known, crashesOnText) {
		return nil, ""
	}
	return eachModel(s, func(m *Model) *Finding {
		if m.Sequence == nil {
			return nil
		}
		for _, input := range m.Sequence.ControlInput {
			for _, control := range input.Control {
				if control.Kind != "CONTROL_SEQUENCE_CORRID" || control.DataType == "TYPE_STRING" {
					continue
				}
				return &Finding{
					Severity: Problem,
					Evidence: fmt.Sprintf("the control %q is CONTROL_SEQUENCE_CORRID of %s; %s", input.Name, control.DataType, serverWords(s)),
					Remedy:   "remove the control, which this backend does not need, or use tritonserver 25.01 or later",
				}
			}
		}
		return nil
	})
}

func crashesOnText(c Command) bool { return c.Version.before(2501, 54) }

// serverWords says which servers are concerned.
func serverWords(s *Subject) string {
	for _, server := range s.versions() {
		if crashesOnText(server) {
			return "the server is " + server.Version.String() + ", which crashes on a string as correlation ID"
		}
	}
	return "a server before 25.01 (2.54) crashes on a string as correlation ID"
}

// responseCache: an answer from the cache is sent without a run, so the state stays behind.
func responseCache(s *Subject) ([]Finding, string) {
	return eachModel(s, func(m *Model) *Finding {
		if !m.ResponseCache.Enable || !m.hasStates() {
			return nil
		}
		return &Finding{
			Severity: Problem, Evidence: "response_cache { enable: true } for a model with states: equal requests get the first one's answer, and the state is not updated",
			Remedy: "remove response_cache from the configuration",
		}
	})
}

// queuePolicy: with priorities or a queue policy, Triton hands over a batch only when an instance is idle, and does not
// always notice that one has become so.
func queuePolicy(s *Subject) ([]Finding, string) {
	return eachModel(s, func(m *Model) *Finding {
		d, has := m.Dynamic, ""
		switch {
		case d == nil || m.instances() > 1:
			return nil
		case d.PriorityLevels > 0:
			has = "priority_levels"
		case d.Policy.Timeout > 0 || d.Policy.MaxQueue > 0 || d.Policy.Override:
			has = "a default_queue_policy"
		default:
			return nil
		}
		return &Finding{
			Severity: Problem,
			Evidence: fmt.Sprintf("dynamic_batching has %s, and there is one instance", has),
			Remedy:   "instance_group [{ count: 2 }]; the instances of a model with states share the sequences",
		}
	})
}

// defaultMaxBatchSize: the option changes the size that the backend fills in.
func defaultMaxBatchSize(s *Subject) (found []Finding, unseen string) {
	if len(s.Commands) == 0 {
		return nil, needsCommand
	}
	for i := range s.Commands {
		c := &s.Commands[i]
		for _, value := range c.options("backend-config") {
			backend, setting, separated := strings.Cut(value, ",")
			if !separated {
				backend, setting = "", value
			}
			size, is := strings.CutPrefix(setting, "default-max-batch-size=")
			if !is || size == "4" || backend != "" && backend != "stateful" {
				continue
			}
			if len(s.Models) > 0 && !slices.ContainsFunc(s.Models, filledIn) {
				continue
			}
			found = append(found, Finding{
				Severity: Note, Where: c.Where,
				Evidence: fmt.Sprintf("--backend-config=%s: models without max_batch_size, input and output get max_batch_size %s, not 64 or what their slots allow", value, size),
				Remedy:   "remove the option, or write max_batch_size into each config.pbtxt",
			})
		}
	}
	return found, ""
}

// filledIn reports whether the backend fills in the batch size of a model, or may: a server shows
// what was filled in, and not that it was.
func filledIn(m Model) bool {
	return m.ours() && (m.Completed || m.MaxBatch == 0 && len(m.Input) == 0 && len(m.Output) == 0)
}
