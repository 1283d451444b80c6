package doctor

import (
	"fmt"
	"strings"
)

const needsCommand = "the options of the server: --pid, or a folder with its deployment"

// eachServer applies a rule to every server of a known version. It has no options if only its URL
// is known.
func eachServer(s *Subject, check func(c *Command) *Finding) (found []Finding) {
	for _, c := range s.versions() {
		if f := check(&c); f != nil {
			f.Where = c.Where
			found = append(found, *f)
		}
	}
	return found
}

// grpcPool: requests of a stream are reused while the server still reads them.
func grpcPool(s *Subject) ([]Finding, string) {
	if len(s.versions()) == 0 {
		return nil, "the URL of a server, or a deployment with the version in the name of its image"
	}
	return eachServer(s, func(c *Command) *Finding {
		if c.Version.Minor != 51 && c.Version.Release != 2410 {
			return nil
		}
		const option = "grpc-infer-allocation-pool-size"
		seen := "without --" + option
		if _, given := c.option(option); given {
			return nil
		} else if len(c.Args) == 0 {
			seen = "whose options are not known"
		}
		return &Finding{
			Severity: Problem, Evidence: fmt.Sprintf("tritonserver %s, %s", c.Version, seen),
			Remedy: "--" + option + "=4096",
		}
	}), ""
}

// clientSharedMemory: it is off by default since April 2026.
func clientSharedMemory(s *Subject) ([]Finding, string) {
	if len(s.versions()) == 0 {
		return nil, "the URL of a server, or a deployment with the version in the name of its image"
	}
	return eachServer(s, func(c *Command) *Finding {
		if c.Version.before(2604, 68) {
			return nil
		}
		seen := "the option --allow-client-shm is not given"
		if value, given := c.option("allow-client-shm"); given {
			if isTrue(value) {
				return nil
			}
			seen = "the option --allow-client-shm is " + value
		} else if len(c.Args) == 0 {
			seen = "the options are not known"
		}
		return &Finding{
			Severity: Note, Evidence: fmt.Sprintf("tritonserver %s; %s: clients that register shared memory get an error", c.Version, seen),
			Remedy: "--allow-client-shm=true, if you trust all clients and they use shared memory",
		}
	}), ""
}

func isTrue(value string) bool {
	switch strings.ToLower(value) {
	case "true", "1", "yes", "on":
		return true
	}
	return false
}

// headerForward: proxies and gateways can add headers, and no parameters.
func headerForward(s *Subject) (found []Finding, unseen string) {
	if len(s.Commands) == 0 {
		return nil, needsCommand
	}
	model := ""
	for i := range s.Models {
		if s.Models[i].ours() && s.Models[i].parameter("state_store") != "" {
			model = s.Models[i].Name
		}
	}
	if model == "" {
		return nil, ""
	}
	for i := range s.Commands {
		c := &s.Commands[i]
		_, http := c.option("http-header-forward-pattern")
		_, grpc := c.option("grpc-header-forward-pattern")
		if http || grpc {
			continue
		}
		found = append(found, Finding{
			Severity: Note, Where: c.Where,
			Evidence: fmt.Sprintf("model %s has a state_store, and no headers are forwarded: stateful-resume, stateful-key and others have an effect only as parameters", model),
			Remedy:   "--http-header-forward-pattern=stateful[-_].* --grpc-header-forward-pattern=stateful[-_].*, if clients or proxies send them as headers",
		})
	}
	return found, ""
}
