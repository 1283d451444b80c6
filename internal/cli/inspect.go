package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tritonstateful/internal/cli/offline"
	"tritonstateful/internal/modelconfig"
)

// inspection is the result of inspect as JSON; docs/command-inspect.md describes it.
type inspection struct {
	Schema int    `json:"schema"`
	Model  string `json:"model"`
	// Served is whether a load would succeed; if not, Questions says why.
	Served       bool `json:"served"`
	Sequences    bool `json:"sequences"`
	MaxBatchSize int  `json:"max_batch_size"`
	// OneLane is why requests run one at a time, or empty.
	OneLane          string             `json:"one_at_a_time_because,omitempty"`
	BytesPerSequence int64              `json:"bytes_per_sequence"`
	Tensors          []offline.Tensor   `json:"tensors"`
	Questions        []offline.Question `json:"questions"`
	Warnings         []string           `json:"warnings"`
	Notes            []string           `json:"notes"`
	TrialRuns        int                `json:"trial_runs"`
	Config           string             `json:"config"` // config.pbtxt with everything filled in
}

func inspectVerb(c *command) *cobra.Command {
	var configPath string
	verb := &cobra.Command{
		Use:   "inspect MODEL.onnx|DIR",
		Short: "Show what each tensor of a model is for, and why",
		Long: "Shows what the backend makes of a model: the role of each tensor, the batch axes, and how both were found.\n" +
			"Exit code 2 means that a question is open, with which the model would not load; the output has the line that decides it.",
		Example: strings.Join([]string{
			`  tritonstateful inspect vad.onnx`,
			`  tritonstateful inspect vad.onnx --config config.pbtxt --json`,
		}, "\n"),
		Args: arguments("MODEL.onnx|DIR"),
		RunE: func(_ *cobra.Command, args []string) error { return c.inspect(args[0], configPath) },
	}
	verb.Flags().StringVar(&configPath, "config", "", "its config.pbtxt, a `FILE` (default: that in DIR, or none)")
	return verb
}

func (c *command) inspect(path, configPath string) error {
	model, err := c.look(path, configPath)
	if err != nil {
		return err
	}
	result := inspectionOf(model)
	if err := c.emit(result, func(w io.Writer) { c.writeInspection(w, result) }); err != nil {
		return err
	}
	if !result.Served {
		return errFound
	}
	return nil
}

// look opens a model and makes its plan.
func (c *command) look(path, configPath string) (*offline.Model, error) {
	files, err := offline.Read(path, configPath)
	if err != nil {
		return nil, err
	}
	runtime, err := c.runtime()
	if err != nil {
		return nil, err
	}
	return files.Look(runtime.Open)
}

func inspectionOf(m *offline.Model) *inspection {
	result := &inspection{
		Schema: 1, Model: m.Name, Served: m.Plan != nil, Sequences: m.Sequences(), MaxBatchSize: m.Config.MaxBatchSize,
		Tensors: m.Tensors(), Questions: append([]offline.Question{}, m.Questions...), Warnings: append([]string{}, m.Warnings...),
		Notes: append([]string{}, m.Filled...), TrialRuns: m.Runs,
	}
	if full, err := modelconfig.FromJSON(m.JSON); err == nil {
		result.Config = modelconfig.Format(full, nil)
	}
	if m.Plan != nil {
		result.Notes = append(result.Notes, m.Plan.Notes...)
		if m.Plan.MaxLanes == 1 {
			result.OneLane = m.Plan.WhyOneLane
		}
		for i := range m.Plan.States {
			result.BytesPerSequence += m.Plan.States[i].LaneBytes()
		}
	}
	return result
}

func (c *command) writeInspection(w io.Writer, r *inspection) {
	p := c.colors(w)
	fmt.Fprintf(w, "%s: %s\n\n", p.bold(r.Model), r.summary())
	t := newTable("tensor", "role", "type", "shape", "batch", "why")
	for i := range r.Tensors {
		one := &r.Tensors[i]
		name, axis := one.Name, "-"
		if one.Output != "" {
			name += " -> " + one.Output
		}
		if one.BatchAxis != nil {
			axis = strconv.Itoa(*one.BatchAxis)
		}
		t.AppendRow([]any{name, one.Role, one.Type, one.NamedShape(), axis, one.Why()})
	}
	fmt.Fprintln(w, t.Render())
	for _, note := range r.Notes {
		if ofTensor(note) {
			continue
		}
		fmt.Fprintf(w, "\n%s %s", p.note("note:"), note)
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(w, "\n%s %s", p.note("warning:"), warning)
	}
	for _, q := range r.Questions {
		fmt.Fprintf(w, "\n%s %s", p.bad("open:"), q.Text)
	}
	if len(r.Notes)+len(r.Warnings)+len(r.Questions) > 0 {
		fmt.Fprintln(w)
	}
}

// ofTensor reports whether a note says of a tensor what the table says, too.
func ofTensor(note string) bool {
	return slices.ContainsFunc([]string{"input", "output", "state"}, func(kind string) bool {
		return strings.HasPrefix(note, "filled in "+kind+" ")
	})
}

// summary is the first line.
func (r *inspection) summary() string {
	switch {
	case !r.Served:
		return "it would not load, because a question is open"
	case !r.Sequences:
		return fmt.Sprintf("it has no states; batches of up to %d", max(r.MaxBatchSize, 1))
	}
	states, varying := 0, 0
	for i := range r.Tensors {
		if t := &r.Tensors[i]; t.Role == offline.RoleState {
			states++
			if t.Varies {
				varying++
			}
		}
	}
	text := fmt.Sprintf("%s, %d bytes for each sequence", counted(states, "state"), r.BytesPerSequence)
	if varying > 0 {
		text += fmt.Sprintf(" and %d that vary", varying)
	}
	if r.OneLane != "" {
		return text + "; requests run one at a time: " + r.OneLane
	}
	return fmt.Sprintf("%s; batches of up to %d", text, r.MaxBatchSize)
}

// counted is a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
