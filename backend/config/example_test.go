package config_test

import (
	"fmt"

	"tritonstateful/backend/config"
)

// A configuration as Triton passes it, and the backend's own parameters in it.
func ExampleParse() {
	cfg, err := config.Parse([]byte(`{
		"max_batch_size": 8,
		"input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 80]}],
		"sequence_batching": {"oldest": {"max_candidate_sequences": 100}},
		"parameters": {
			"state_pairs": {"string_value": "<<<h, new_h>>> <<<c*, new_c*>>>"},
			"initial_states": {"string_value": "h = 1"},
			"state_pair": {"string_value": "misspelt"}
		}
	}`))
	if err != nil {
		panic(err)
	}
	params, warnings, err := config.ParseParameters(cfg.Parameters)
	if err != nil {
		panic(err) // every parameter that is wrong, and what would be right
	}
	fmt.Println(cfg.MaxBatchSize, cfg.Inputs[0].Dims, cfg.Direct(), cfg.Candidates())
	fmt.Println(params.Pairs, params.InitialStates)
	fmt.Println(warnings)
	// Output:
	// 8 [-1,80] false 100
	// [{h new_h} {c* new_c*}] [{h 1 false}]
	// [parameter "state_pair" is unknown and has no effect; did you mean "state_pairs"?]
}

// A pattern names many tensors at once.
func ExampleMatchPattern() {
	parts, ok := config.MatchPattern("past.*.key", "past.3.key")
	fmt.Println(parts, ok, config.FillPattern("present.*.key", parts))
	// Output:
	// [3] true present.3.key
}
