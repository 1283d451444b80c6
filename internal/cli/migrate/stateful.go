package migrate

import (
	"slices"
	"strconv"
	"strings"
)

// toStateful makes a configuration one of this backend. Those of NVIDIA's backend run unchanged.
func (e *editor) toStateful(pairs bool) error {
	e.setBackend("stateful")
	for _, name := range []string{"batch_input", "batch_output"} {
		e.removeField(e.fields, name, "ragged batches are not supported: requests of different shapes run separately, and derived_inputs gives lengths")
	}
	if _, sequence := e.sequence(); sequence != nil || len(e.pairs()) > 0 {
		e.removeField(e.fields, "response_cache", "a cached answer would not update the state")
	}
	e.accelerators()
	e.numericCorrID()
	if pairs {
		e.listToPairs()
	}
	return nil
}

// pairs is the parameter state_pairs.
func (e *editor) pairs() string {
	value, _ := e.parameter("state_pairs")
	return strings.TrimSpace(value)
}

// accelerators removes those that do not exist here.
func (e *editor) accelerators() {
	for _, optimization := range messages(e.fields, "optimization") {
		for _, accelerators := range named(optimization, "execution_accelerators") {
			var removed [][]*field
			if _, given := e.parameter("ort_ep_library"); !given {
				removed = e.removeMessages(accelerators.fields, "cpu_execution_accelerator", func([]*field) bool { return true })
			}
			removed = append(removed, e.removeMessages(accelerators.fields, "gpu_execution_accelerator", func(body []*field) bool {
				name := valueOf(body, "name")
				return name != "tensorrt" && name != "cuda"
			})...)
			for _, body := range removed {
				e.note("remove the accelerator "+valueOf(body, "name"), "it is not available: see ort_ep_library for execution providers in libraries")
			}
		}
	}
}

// Values of enumerations can be numbers, too.
var (
	corrID     = []string{"CONTROL_SEQUENCE_CORRID", "3"}
	stringType = []string{"TYPE_STRING", "13"}
)

// numericCorrID removes inputs whose only control is a numeric ID. The model may need it, which
// only its inputs say.
func (e *editor) numericCorrID() {
	_, sequence := e.sequence()
	removed := e.removeMessages(sequence, "control_input", func(body []*field) bool {
		controls := messages(body, "control")
		for _, control := range controls {
			if !slices.Contains(corrID, valueOf(control, "kind")) || slices.Contains(stringType, valueOf(control, "data_type")) {
				return false
			}
		}
		return len(controls) > 0
	})
	for _, body := range removed {
		e.note("remove the control "+valueOf(body, "name"), "the backend does not need the numeric CONTROL_SEQUENCE_CORRID, and a tritonserver before 25.01 crashes when a client sends a string; keep it if the model has this input")
	}
}

// listToPairs replaces sequence_batching { state } by parameters of the same effect.
func (e *editor) listToPairs() {
	listed := e.listed()
	if len(listed) == 0 {
		return
	}
	_, sequence := e.sequence()
	e.removeField(sequence, "state", "state_pairs says the same, and Triton allocates no memory of its own for it")
	names := func(body []*field) (in, out string) { return valueOf(body, "input_name"), valueOf(body, "output_name") }
	if e.pairs() == "" {
		e.addParameter("state_pairs", pairsOf(listed, names), "the states of the list")
	}
	var initial []string
	for _, body := range listed {
		in, _ := names(body)
		if value := initialOf(body); value != "" {
			initial = append(initial, in+" = "+value)
		}
	}
	switch value, given := e.parameter("initial_states"); {
	case len(initial) == 0:
	case given:
		e.open = append(e.open, "initial_states is "+quote(value)+"; add what the list said, unless it is there: "+strings.Join(initial, "; "))
	default:
		e.addParameter("initial_states", strings.Join(initial, "; "), "the values that the list gave")
	}
	if _, given := e.parameter("max_candidate_sequence_use_ratio"); !given {
		e.addParameter("max_candidate_sequence_use_ratio", "1", "a slot for each candidate sequence, as with a list; the default with state_pairs is 0.9")
	}
}

// initialOf is what initial_states has to say for a state of a list to begin as before: the bytes
// of a file, or zeros in a shape that the list gives; "" for zeros in the shape of the model.
func initialOf(body []*field) string {
	for _, initial := range messages(body, "initial_state") {
		if file := valueOf(initial, "data_file"); file != "" {
			return "file:" + file
		}
		if dims := dimsOf(initial); len(dims) > 0 && varies(dimsOf(body)) {
			return "0[" + strings.Join(dims, ",") + "]"
		}
	}
	dims := dimsOf(body)
	if !varies(dims) {
		return ""
	}
	for i := range dims { // Triton begins with 1 where the list says -1
		if dims[i] == "-1" {
			dims[i] = "1"
		}
	}
	return "0[" + strings.Join(dims, ",") + "]"
}

func varies(dims []string) bool {
	for _, dim := range dims {
		if dim == "-1" {
			return true
		}
	}
	return false
}

// dimsOf are the dims of a message.
func dimsOf(body []*field) (dims []string) {
	for _, f := range named(body, "dims") {
		for _, element := range append([]*element{{value: f.value}}, f.elements...) {
			if n, err := strconv.ParseInt(element.value, 0, 64); err == nil { // also 0x10
				dims = append(dims, strconv.FormatInt(n, 10))
			}
		}
	}
	return dims
}
