package doctor

import (
	"slices"
	"strings"
)

// A Rule looks for one fault.
type Rule struct {
	ID    string `json:"id"`    // stable, such as idle-limit
	Title string `json:"title"` // the fault in a few words
	Page  string `json:"page"`  // of docs/, which describes it
	// Thread is where the fault was reported: an issue or a commit on GitHub, or in words.
	Thread string `json:"thread"`
	// check returns what it has found. unseen is what it would need to decide, if it could
	// not.
	check func(s *Subject) (found []Finding, unseen string)
}

// Rules are all rules, in the order of a report.
var Rules = []Rule{
	{"idle-limit", "Sequences end after one second without a request", "schedulers.md", "triton-inference-server/server#5743", idleLimit},
	{"numeric-corrid", "A client can crash the server by a string as correlation ID", "reliability.md#known-crashes-of-tritonserver", "triton-inference-server/core@eeb283a", numericCorrID},
	{"response-cache", "A cached answer skips the update of the state", "command-doctor.md#rules", "Triton refuses it with sequence_batching only", responseCache},
	{"queue-policy", "A request waits half a second in an idle server", "schedulers.md#priorities-and-queue-policies", "triton-inference-server/core#237", queuePolicy},
	{"grpc-pool", "tritonserver 2.51 can crash under gRPC streams", "performance.md", "seen with a backend that does nothing", grpcPool},
	{"client-shm", "Clients cannot register shared memory", "schedulers.md", "triton-inference-server/server@546a78766", clientSharedMemory},
	{"header-forward", "Headers of requests do not reach the backend", "sequences-outlive-the-server.md#parameters-of-requests", "triton-inference-server/server#3658", headerForward},
	{"default-max-batch-size", "The server changes the batch size of models", "autocomplete.md#max_batch_size", "triton-inference-server/onnxruntime_backend#148", defaultMaxBatchSize},
	{"affinity", "Requests of one sequence reach different servers", "more-than-one-server.md#3-a-proxy", "triton-inference-server/server#7360", affinity},
	{"autoscaling", "The autoscaler does not see sequences", "metrics.md#autoscaling", "triton-inference-server/server#5787", autoscaling},
	{"onnxruntimes", "There are several ONNX Runtimes in the server", "RATIONALE.md#why-is-onnx-runtime-renamed", "triton-inference-server/server#6221", severalRuntimes},
	{"telemetry", "Another ONNX Runtime in the server has telemetry", "reliability.md#no-telemetry", "ONNX Runtime 1.29 and later", telemetry},
	{"glibc", "The C library is too old for the backend", "command-doctor.md#rules", "triton-inference-server/server#7913", oldLibrary},
}

// Severity is how bad a finding is.
type Severity string

const (
	// Problem loses sequences, answers or the server, or keeps a model from loading.
	Problem Severity = "problem"
	// Note is wrong for some uses only.
	Note Severity = "note"
)

// A Finding is a fault that was seen.
type Finding struct {
	Rule     string   `json:"rule"` // ID
	Severity Severity `json:"severity"`
	Where    string   `json:"where"`    // a model, a process or a file
	Evidence string   `json:"evidence"` // what was seen there
	Remedy   string   `json:"remedy"`   // what to change
}

// Unseen is a rule that could not be applied.
type Unseen struct {
	Rule  string `json:"rule"`
	Needs string `json:"needs"` // what would have to be given
}

// Report is what all rules say.
type Report struct {
	Findings []Finding `json:"findings"` // problems first
	Unseen   []Unseen  `json:"unseen"`
	Fine     []string  `json:"fine"` // IDs of rules that found nothing
}

// Examine applies all rules.
func Examine(s *Subject) *Report {
	r := &Report{Findings: []Finding{}, Unseen: []Unseen{}, Fine: []string{}}
	for i := range Rules {
		rule := &Rules[i]
		found, unseen := rule.check(s)
		for _, f := range found {
			f.Rule = rule.ID
			r.Findings = append(r.Findings, f)
		}
		switch {
		case len(found) > 0:
		case unseen != "":
			r.Unseen = append(r.Unseen, Unseen{rule.ID, unseen})
		default:
			r.Fine = append(r.Fine, rule.ID)
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return strings.Compare(string(b.Severity), string(a.Severity)) })
	return r
}

// Problems counts the findings that are more than a note.
func (r *Report) Problems() (count int) {
	for i := range r.Findings {
		if r.Findings[i].Severity == Problem {
			count++
		}
	}
	return count
}
