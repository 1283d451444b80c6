//go:build faults

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/status"
)

func TestInjectedFaults(t *testing.T) {
	for _, name := range faultNames {
		info := backend.ModelInfo{Config: []byte(`{"parameters":{"fault_inject":{"string_value":"` + name + `@2"}}}`)}
		m := withFaults(fakeModel{func(backend.InstanceInfo) (executor, error) { return newEcho(), nil }}, info)
		in, err := m.NewInstance(backend.InstanceInfo{})
		require.NoError(t, err)
		s := serve(t, in)
		for batch := 1; batch <= 3; batch++ {
			rs := s.execute(t, echoCall(1, 1, 2))
			if batch == 2 {
				refused(t, rs[0], status.Internal, "panic in the stateful backend")
			} else {
				answered(t, rs[0], y(1, 2), z(7))
			}
		}
	}
}

func TestNoFault(t *testing.T) {
	m := fakeModel{}
	for _, config := range []string{"", "{}", `{"parameters":{"state_pairs":{"string_value":"x"}}}`} {
		require.IsType(t, m, withFaults(m, backend.ModelInfo{Config: []byte(config)}))
	}
	require.Panics(t, func() {
		withFaults(m, backend.ModelInfo{Config: []byte(`{"parameters":{"fault_inject":{"string_value":"other"}}}`)})
	})
}
