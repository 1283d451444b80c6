package doctor

import (
	"fmt"
	"slices"
	"strings"
)

const needsDeployment = "a folder with the deployment: files of Kubernetes or of docker compose"

// affinity: each server has the states of its sequences, so their requests must come back to it.
func affinity(s *Subject) (found []Finding, unseen string) {
	if len(s.Workloads) == 0 {
		return nil, needsDeployment
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		servers := fmt.Sprintf("%d replicas", w.Replicas)
		if w.Replicas < 2 {
			at := slices.IndexFunc(s.Scalers, func(x Scaler) bool { return x.Target == w.Name && x.MaxReplicas > 1 })
			if at < 0 {
				continue
			}
			servers = fmt.Sprintf("up to %d replicas", s.Scalers[at].MaxReplicas)
		}
		if s.Headers {
			continue
		}
		how := "and no proxy that hashes the header stateful-sequence"
		if w.Affinity != "" {
			how += "; " + w.Affinity + " binds the connections of a client, not its sequences"
		}
		found = append(found, Finding{
			Severity: Problem, Where: w.Where, Evidence: fmt.Sprintf("%s %s has %s of tritonserver, %s", w.Kind, w.Name, servers, how),
			Remedy: "a proxy with a consistent hash of the header stateful-sequence: docs/deploy/envoy.yaml, docs/deploy/haproxy.cfg",
		})
	}
	return found, ""
}

// autoscaling: idle sequences have states and use no processor.
func autoscaling(s *Subject) (found []Finding, unseen string) {
	if len(s.Workloads) == 0 {
		return nil, needsDeployment
	}
	for i := range s.Scalers {
		scaler := &s.Scalers[i]
		ours := slices.ContainsFunc(s.Workloads, func(w Workload) bool { return w.Name == scaler.Target })
		sees := slices.ContainsFunc(scaler.Metrics, func(metric string) bool { return strings.Contains(metric, "stateful_") })
		if !ours || sees {
			continue
		}
		seen := strings.Join(scaler.Metrics, ", ")
		if seen == "" {
			seen = "nothing"
		}
		found = append(found, Finding{
			Severity: Problem, Where: scaler.Where,
			Evidence: "it scales on " + seen + ": a server whose slots are all taken refuses sequences, whatever that says",
			Remedy:   "scale on stateful_slots_used_ratio, as docs/deploy/kubernetes.yaml does",
		})
	}
	return found, ""
}
