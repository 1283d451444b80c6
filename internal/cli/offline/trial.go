package offline

import (
	"errors"

	"tritonstateful/backend"
	"tritonstateful/internal/cli/localserver"
	"tritonstateful/internal/cli/scratch"
	"tritonstateful/internal/modelconfig"
	"tritonstateful/internal/onnx"
)

// tryToLoad loads the model as a server would, and returns what the server would warn of. The plan alone does not find all
// that a load does: slots, unknown parameters, what free sequences exclude, states that cannot be saved. The state store that the
// configuration names is not touched: an empty folder stands in for it.
func (m *Model) tryToLoad(open onnx.OpenRunner) (warnings []string, err error) {
	full, err := modelconfig.FromJSON(m.JSON)
	if err != nil {
		return nil, err
	}
	if m.Parameters.Checkpoint.Store != "" {
		folder, remove, err := scratch.Folder("tritonstateful-store-")
		if err != nil {
			return nil, err
		}
		defer remove()
		full.Parameters["state_store"] = &modelconfig.ModelParameter{StringValue: "file:" + folder}
	}
	info := backend.ModelInfo{Name: m.Name, Version: m.Version, Directory: m.Directory, Config: modelconfig.JSON(full)}
	atFile := func(o onnx.SessionOptions) (onnx.Runner, error) {
		o.Path = m.Model // which is not in the folder of a version if an ONNX file was given
		return open(o)
	}
	in, err := localserver.Load(info, func(warning string) { warnings = append(warnings, warning) }, atFile)
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil { // without the name of the instance
			err = inner
		}
		return nil, err
	}
	in.Close()
	return warnings, nil
}

// WithStore is the configuration with another state store, which saves when a request asks for it, or with none.
func (m *Model) WithStore(store string) (*modelconfig.ModelConfig, error) {
	full, err := modelconfig.FromJSON(m.JSON)
	if err != nil {
		return nil, err
	}
	delete(full.Parameters, "state_store")
	if store == "" {
		return full, nil
	}
	if full.Parameters == nil {
		full.Parameters = map[string]*modelconfig.ModelParameter{}
	}
	for name, value := range map[string]string{"state_store": store, "checkpoint": "request", "checkpoint_precision": "exact", "checkpoint_rate": "0"} {
		full.Parameters[name] = &modelconfig.ModelParameter{StringValue: value}
	}
	return full, nil
}
