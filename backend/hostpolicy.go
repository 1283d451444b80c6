package backend

import (
	"maps"
	"slices"
	"strings"
)

// HostPolicy is what the server's operator has set for the threads and the memory of an
// instance: --host-policy, by the name that instance_group has for it. Triton itself binds
// the threads that load and execute an instance, and the threads that these start inherit it.
type HostPolicy map[string]string // "cpu-cores": "0-3", "numa-node": "0"

// String is "cpu-cores=0-3,numa-node=0", and empty where nothing is set.
func (p HostPolicy) String() string {
	settings := make([]string, 0, len(p))
	for _, name := range slices.Sorted(maps.Keys(p)) {
		settings = append(settings, name+"="+p[name])
	}
	return strings.Join(settings, ",")
}
