package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// at returns what is at a path of a YAML document, or nil. Elements of lists are chosen by their
// index.
func at(value any, path ...string) any {
	for _, name := range path {
		switch v := value.(type) {
		case map[string]any:
			value = v[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(v) {
				return nil
			}
			value = v[i]
		default:
			return nil
		}
	}
	return value
}

func textAt(value any, path ...string) string {
	text, _ := at(value, path...).(string)
	return text
}

func countAt(value any, path ...string) int {
	n, _ := at(value, path...).(int)
	return n
}

func listAt(value any, path ...string) []any {
	list, _ := at(value, path...).([]any)
	return list
}

// addDocument adds what one document of a file says.
func (s *Subject) addDocument(path string, document any) {
	kind, name := textAt(document, "kind"), textAt(document, "metadata", "name")
	where := fmt.Sprintf("%s: %s %s", path, kind, name)
	switch kind {
	case "HorizontalPodAutoscaler":
		s.Scalers = append(s.Scalers, Scaler{
			Where: where, Target: textAt(document, "spec", "scaleTargetRef", "name"),
			MaxReplicas: countAt(document, "spec", "maxReplicas"), Metrics: podMetrics(document),
		})
	case "ScaledObject": // of KEDA
		s.Scalers = append(s.Scalers, Scaler{
			Where: where, Target: textAt(document, "spec", "scaleTargetRef", "name"),
			MaxReplicas: countAt(document, "spec", "maxReplicaCount"), Metrics: triggers(document),
		})
	case "Service":
		if affinity := textAt(document, "spec", "sessionAffinity"); affinity != "" && affinity != "None" {
			for i := range s.Workloads {
				s.Workloads[i].Affinity = "sessionAffinity: " + affinity
			}
		}
	case "":
		services, _ := at(document, "services").(map[string]any)
		for _, service := range sortedKeys(services) {
			at := fmt.Sprintf("%s: service %s", path, service)
			replicas := max(countAt(services[service], "deploy", "replicas"), countAt(services[service], "scale"))
			s.addContainers(at, "service", service, replicas, []any{services[service]})
		}
	default:
		containers := slices.Concat(listAt(document, "spec", "template", "spec", "containers"), listAt(document, "spec", "containers"))
		s.addContainers(where, kind, name, countAt(document, "spec", "replicas"), containers)
	}
}

// addContainers adds a workload if one of its containers is a tritonserver.
func (s *Subject) addContainers(where, kind, name string, replicas int, containers []any) {
	for _, container := range containers {
		args := slices.Concat(words(at(container, "command")), words(at(container, "args")))
		image := textAt(container, "image")
		started := slices.ContainsFunc(args, func(arg string) bool { return arg == "tritonserver" || strings.HasSuffix(arg, "/tritonserver") })
		if !started && !strings.Contains(image, "tritonserver") {
			continue
		}
		s.Commands = append(s.Commands, Command{Where: where, Args: args, Version: imageVersion(image)})
		s.Workloads = append(s.Workloads, Workload{Where: where, Kind: kind, Name: name, Replicas: max(replicas, 1)})
	}
}

// words are those of a command, which is a list or a text; shell commands in it are split too.
func words(command any) (all []string) {
	switch v := command.(type) {
	case string:
		return strings.Fields(v)
	case []any:
		for _, element := range v {
			all = append(all, strings.Fields(fmt.Sprint(element))...)
		}
	}
	return all
}

// podMetrics are what a HorizontalPodAutoscaler looks at.
func podMetrics(document any) (names []string) {
	for _, metric := range listAt(document, "spec", "metrics") {
		for _, kind := range []string{"pods", "object", "external"} {
			if name := textAt(metric, kind, "metric", "name"); name != "" {
				names = append(names, name)
			}
		}
		for _, kind := range []string{"resource", "containerResource"} {
			if name := textAt(metric, kind, "name"); name != "" {
				names = append(names, name)
			}
		}
	}
	if at(document, "spec", "targetCPUUtilizationPercentage") != nil {
		names = append(names, "cpu")
	}
	return names
}

// triggers are what a ScaledObject looks at.
func triggers(document any) (names []string) {
	for _, trigger := range listAt(document, "spec", "triggers") {
		name := textAt(trigger, "metadata", "query")
		if name == "" {
			name = textAt(trigger, "type")
		}
		names = append(names, name)
	}
	return names
}

func sortedKeys(m map[string]any) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
