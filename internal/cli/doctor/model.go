package doctor

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// A Model is the part of a model's configuration that rules look at. Field names follow
// model_config.proto.
type Model struct {
	Where    string `json:"-"` // "model NAME", or a file
	Name     string `json:"name"`
	Backend  string `json:"backend"`
	MaxBatch number `json:"max_batch_size"`
	Input    []struct {
		Name string `json:"name"`
	} `json:"input"`
	Output []struct {
		Name string `json:"name"`
	} `json:"output"`
	Sequence *struct {
		IdleMicroseconds number `json:"max_sequence_idle_microseconds"`
		ControlInput     []struct {
			Name    string `json:"name"`
			Control []struct {
				Kind     string `json:"kind"`
				DataType string `json:"data_type"`
			} `json:"control"`
		} `json:"control_input"`
	} `json:"sequence_batching"`
	Dynamic *struct {
		PriorityLevels number `json:"priority_levels"`
		Policy         struct {
			Timeout  number `json:"default_timeout_microseconds"`
			Override bool   `json:"allow_timeout_override"`
			MaxQueue number `json:"max_queue_size"`
		} `json:"default_queue_policy"`
	} `json:"dynamic_batching"`
	InstanceGroup []struct {
		Count number   `json:"count"`
		GPUs  []number `json:"gpus"`
	} `json:"instance_group"`
	ResponseCache struct {
		Enable bool `json:"enable"`
	} `json:"response_cache"`
	Parameters map[string]struct {
		String string `json:"string_value"`
	} `json:"parameters"`
	// Completed: it comes from a server, which fills in what the file leaves out.
	Completed bool `json:"-"`
}

// parseModel reads a configuration as a server sends it, or as it is made of config.pbtxt.
func parseModel(where string, config []byte) (Model, error) {
	m := Model{Where: where}
	if err := json.Unmarshal(config, &m); err != nil {
		return m, fmt.Errorf("read the configuration of %s: %w", where, err)
	}
	return m, nil
}

func (m *Model) ours() bool { return m.Backend == "stateful" }

func (m *Model) parameter(name string) string { return m.Parameters[name].String }

// instances is how many instances a server makes of the model: that many on each GPU that is named.
func (m *Model) instances() (count int) {
	for _, group := range m.InstanceGroup {
		count += max(int(group.Count), 1) * max(len(group.GPUs), 1)
	}
	return max(count, 1)
}

// hasStates reports whether the configuration says that the model has states.
func (m *Model) hasStates() bool {
	if m.Sequence != nil || m.parameter("sequences") == "free" {
		return true
	}
	for _, name := range []string{"state_pairs", "initial_states", "state_updates", "state_store"} {
		if m.parameter(name) != "" {
			return true
		}
	}
	return false
}

// number is an integer that JSON has as a number or, of 64 bits, as a string.
type number int64

func (n *number) UnmarshalJSON(text []byte) error {
	v, err := strconv.ParseInt(strings.Trim(string(text), `"`), 10, 64)
	if err != nil {
		return fmt.Errorf("%s: want an integer", text)
	}
	*n = number(v)
	return nil
}
