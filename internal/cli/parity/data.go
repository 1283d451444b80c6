package parity

import (
	"fmt"
	"strings"

	"tritonstateful/backend/plan"
	"tritonstateful/internal/cli/recording"
)

// readData reads FILE or INPUT=FILE, a .npy or a .wav file. Without an input it is for the first one of fractions.
func readData(text string, pl *plan.Plan) (input int, r *recording.Recording, err error) {
	name, path, named := strings.Cut(text, "=")
	if !named {
		name, path = "", text
	}
	input = -1
	for i := range pl.Inputs {
		if named && pl.Inputs[i].Name == name || !named && input < 0 && recording.IsFraction(pl.Inputs[i].DType) {
			input = i
		}
	}
	if input < 0 {
		return 0, nil, fmt.Errorf("data %q: the model has no such input: want FILE or INPUT=FILE", text)
	}
	r, err = recording.Read(path, pl.Inputs[input].DType)
	return input, r, err
}
