package cli

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tritonstateful/internal/cli/capacity"
)

// planned is the result of plan as JSON; docs/command-plan.md describes it.
type planned struct {
	Schema int    `json:"schema"`
	Model  string `json:"model"`
	*capacity.Plan
	// Fitting is how many sequences fit into the memory of --memory, and FittingGPU into that of --gpu-memory; they are
	// missing without these.
	Fitting    *int64 `json:"sequences_that_fit,omitempty"`
	FittingGPU *int64 `json:"sequences_that_fit_gpu,omitempty"`
}

// planOptions are the flags of plan.
type planOptions struct {
	capacity.Options
	memory, gpuMemory string
}

func planVerb(c *command) *cobra.Command {
	var o planOptions
	verb := &cobra.Command{
		Use:   "plan DIR",
		Short: "Measure what memory a number of sequences takes, and what a state store has to write",
		Long: "Loads the model of a model repository's folder in this process, runs sequences on it, and measures. The numbers are for one\n" +
			"instance on the CPU, without what tritonserver itself takes. Exit code 2 means that the configuration has too few slots.",
		Example: strings.Join([]string{
			`  tritonstateful plan model_repository/vad`,
			`  tritonstateful plan model_repository/vad --sequences 2000 --steps 300 --rate 31 --memory 16GB`,
		}, "\n"),
		Args: arguments("DIR"),
		RunE: func(_ *cobra.Command, args []string) error { return c.plan(args[0], &o) },
	}
	f := verb.Flags()
	f.IntVar(&o.Sequences, "sequences", 0, "sequences at a time (default: as many as the configuration has slots)")
	f.IntVar(&o.Steps, "steps", 12, "requests of each sequence; what states that vary have after them is what counts")
	f.Float64Var(&o.Rate, "rate", 10, "requests per second of each sequence, for the traffic of a state store")
	f.Int64Var(&o.Extent, "extent", 0, "extent of the open axes of requests, such as frames (default: the first that the model runs with)")
	f.StringArrayVar(&o.Data, "data", nil, "a .npy or .wav `FILE` for the first input of fractions, or INPUT=FILE; can be given several times")
	f.StringVar(&o.memory, "memory", "", "say how many sequences fit into this `SIZE`, such as 16GB")
	f.StringVar(&o.gpuMemory, "gpu-memory", "", "say how many sequences fit into this `SIZE` on a GPU")
	return verb
}

func (c *command) plan(path string, o *planOptions) error {
	if o.Sequences < 0 || o.Steps < 1 || o.Extent < 0 || !(o.Rate >= 0 && o.Rate <= 1e9) {
		return usagef("--sequences is %d, --steps %d, --extent %d and --rate %g: want 1 or more", o.Sequences, o.Steps, o.Extent, o.Rate)
	}
	available, err := parseSize("--memory", o.memory)
	if err != nil {
		return err
	}
	onGPU, err := parseSize("--gpu-memory", o.gpuMemory)
	if err != nil {
		return err
	}
	model, err := c.served(path)
	if err != nil {
		return err
	}
	runtime, err := c.runtime()
	if err != nil {
		return err
	}
	measured, err := capacity.Measure(model, capacity.Tools{Open: runtime.Open, Trim: runtime.Trim}, o.Options)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	result := &planned{Schema: 1, Model: model.Name, Plan: measured}
	if available > 0 {
		each := max(measured.SequenceBytes, measured.StateBytes, measured.SlotBytes, 1)
		fits := max(0, int64(measured.Sequences)+(available-measured.Resident)/each)
		result.Fitting = &fits
	}
	if onGPU > 0 {
		fits := max(0, onGPU-measured.Session-measured.Batch) / max(measured.StateBytes, measured.SlotBytes, 1)
		result.FittingGPU = &fits
	}
	if err := c.emit(result, func(w io.Writer) { c.writePlan(w, result) }); err != nil {
		return err
	}
	if measured.Missing != "" {
		return errFound
	}
	return nil
}

func (c *command) writePlan(w io.Writer, r *planned) {
	p := c.colors(w)
	fmt.Fprintf(w, "%s: %s of %s\n\n", p.bold(r.Model), counted(r.Sequences, "sequence"), counted(r.Steps, "step"))
	t := newTable("memory", "size", "")
	t.AppendRow([]any{"ONNX Runtime's own", sized(r.Session), "weights and arena, measured"})
	t.AppendRow([]any{fmt.Sprintf("a batch of %d", r.LargestBatch), sized(r.Batch), "inputs, outputs and states of a run"})
	slots := fmt.Sprintf("%d slots of %s, all at load", r.Slots, sized(r.SlotBytes))
	if r.ChunkSlots > 0 {
		slots = fmt.Sprintf("%d slots of %s: %d at load, then %d at a time", r.Slots, sized(r.SlotBytes), r.InitialSlots, r.ChunkSlots)
	}
	t.AppendRow([]any{"slots", sized(int64(r.Slots) * r.SlotBytes), slots})
	t.AppendRow([]any{"states of a sequence", sized(r.StateBytes), "after its last step"})
	if r.SequenceBytes > 0 {
		t.AppendRow([]any{"a sequence", sized(r.SequenceBytes), fmt.Sprintf("resident, measured with %d", r.Measured)})
	}
	t.AppendRow([]any{"after the load", sized(r.Loaded), "resident, measured"})
	t.AppendRow([]any{p.bold("with all sequences"), sized(r.Resident), "resident, without tritonserver itself"})
	fmt.Fprintln(w, t.Render())
	if len(r.Traffic) > 0 {
		t := newTable("checkpoint", "saves/s", "written/s", "")
		for _, policy := range r.Traffic {
			t.AppendRow([]any{policy.Checkpoint, policy.SavesPerSecond, sized(policy.BytesPerSecond), ""})
		}
		fmt.Fprintf(w, "\nA saved state has %s. With %g requests/s of each sequence, a state store writes:\n\n%s\n", sized(r.Saved), r.Rate, t.Render())
	}
	if r.Fitting != nil {
		fmt.Fprintf(w, "\n%s fit into --memory.\n", counted(int(*r.Fitting), "sequence"))
	}
	if r.FittingGPU != nil {
		fmt.Fprintf(w, "\n%s fit into --gpu-memory, next to the weights, the arena and a batch, without what CUDA takes.\n", counted(int(*r.FittingGPU), "sequence"))
	}
	if r.Missing != "" {
		fmt.Fprintf(w, "\n%s the configuration has too few slots: write %s\n", p.bad("open:"), r.Missing)
	}
}

// parseSize reads the size of a flag, such as 16GB or 512MiB; "" is 0.
func parseSize(flag, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	units := map[string]float64{"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
	digits := strings.TrimRight(text, "BKMGTIbkmgti ")
	number, err := strconv.ParseFloat(digits, 64)
	unit, known := units[strings.ToUpper(strings.TrimSpace(text[len(digits):]))]
	if err != nil || !known || number <= 0 || number*unit > 1<<60 {
		return 0, usagef("%s is %q: want a size such as 16GB or 512MiB", flag, text)
	}
	return int64(number * unit), nil
}

// sized is a size for people, to three digits.
func sized(bytes int64) string {
	size, unit := float64(bytes), 0
	for units := "kMGTPE"; size >= 999.5 && unit < len(units); unit++ {
		size /= 1000
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.*f", max(0, 2-int(math.Log10(size+0.001))), size), ".") + " " + "kMGTPE"[unit-1:unit] + "B"
}
