package main

import (
	"encoding/json"

	"tritonstateful/backend"
	"tritonstateful/internal/status"
)

// readHostPolicy reads the JSON of TRITONBACKEND_ModelInstanceHostPolicy, {"policy": {"setting":
// "value"}}, without the name: policies with the same settings are the same.
func readHostPolicy(text []byte) (backend.HostPolicy, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var policies map[string]backend.HostPolicy
	if err := json.Unmarshal(text, &policies); err != nil {
		return nil, status.Errorf(status.Internal, "host policy %q: %w", text, err)
	}
	for _, policy := range policies { // there is one
		return policy, nil
	}
	return nil, nil
}
