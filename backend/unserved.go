package backend

import "fmt"

// warnings is what the configuration says that goes wrong, or does nothing, though
// the model can be served.
func (c *Config) warnings() (warnings []string) {
	// The server writes the text of an ID into the control as it is, and counts
	// on TYPE_STRING for the room (SequenceBatch::SetControlTensors).
	if name, control := c.control(ControlCorrID); control != nil && control.DataType != "TYPE_STRING" {
		warnings = append(warnings, fmt.Sprintf("control %q has data_type %s: tritonserver may crash when a client sends a text as the correlation ID; "+
			"leave the control out if the model has no input %q, for this backend needs none, or write data_type: TYPE_STRING if clients may send texts", name, control.DataType, name))
	}
	return warnings
}
