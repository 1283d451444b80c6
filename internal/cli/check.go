package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tritonstateful/internal/cli/offline"
	"tritonstateful/internal/cli/parity"
	"tritonstateful/internal/cli/picture"
)

// checked is the result of check as JSON; docs/command-check.md describes it.
type checked struct {
	Schema int    `json:"schema"`
	Model  string `json:"model"`
	Passed bool   `json:"passed"`
	*parity.Report
}

func checkVerb(c *command) *cobra.Command {
	var o parity.Options
	var plotPath string
	verb := &cobra.Command{
		Use:   "check DIR",
		Short: "Compare what the backend answers with ONNX Runtime, one sequence at a time",
		Long: "Serves the model of a model repository's folder in this process, and compares its answers with what ONNX Runtime computes\n" +
			"for each sequence alone: one by one, in batches, in other orders, after a restart, and after a restore from a state store.\n" +
			"Exit code 2 means that something differs by more than the rounding of batched kernels.",
		Example: strings.Join([]string{
			`  tritonstateful check model_repository/vad`,
			`  tritonstateful check model_repository/vad --extent 576 --data call.wav --lanes 16 --steps 100 --plot differences.png`,
		}, "\n"),
		Args: arguments("DIR"),
		RunE: func(_ *cobra.Command, args []string) error { return c.check(args[0], o, plotPath) },
	}
	f := verb.Flags()
	f.IntVar(&o.Lanes, "lanes", 8, "sequences side by side, at most what the configuration allows")
	f.IntVar(&o.Steps, "steps", 12, "requests of each sequence")
	f.Int64Var(&o.Extent, "extent", 0, "extent of the open axes of requests, such as frames (default: the first that the model runs with)")
	f.StringArrayVar(&o.Data, "data", nil, "a .npy or .wav `FILE` for the first input of fractions, or INPUT=FILE; can be given several times (default: random numbers)")
	f.StringVar(&plotPath, "plot", "", "a .png or .svg `FILE` for a picture of the differences over the steps")
	return verb
}

func (c *command) check(path string, o parity.Options, plotPath string) error {
	if o.Lanes < 1 || o.Steps < 1 || o.Extent < 0 {
		return usagef("--lanes is %d, --steps %d and --extent %d: want 1 or more", o.Lanes, o.Steps, o.Extent)
	}
	if plotPath != "" && !slices.Contains(picture.Formats, filepath.Ext(plotPath)) {
		return usagef("--plot is %q: want a name that ends in %s", plotPath, strings.Join(picture.Formats, " or "))
	}
	model, err := c.served(path)
	if err != nil {
		return err
	}
	runtime, err := c.runtime()
	if err != nil {
		return err
	}
	report, err := parity.Check(model, runtime.Open, o)
	if err != nil {
		return err
	}
	if plotPath != "" {
		var lines []picture.Series
		for _, one := range report.Results {
			lines = append(lines, picture.Series{Name: one.Name, Verdict: verdictOf(&one), Good: one.Good(), First: one.FirstStep, Values: one.ByStep})
		}
		title := model.Name + ": greatest difference from ONNX Runtime at each step"
		if err := picture.Save(plotPath, title, lines); err != nil {
			return err
		}
	}
	result := &checked{1, model.Name, report.Good(), report}
	if err := c.emit(result, func(w io.Writer) { c.writeCheck(w, result) }); err != nil {
		return err
	}
	if !result.Passed {
		return errFound
	}
	return nil
}

// served looks at the model in a model's folder, which must be one that would load.
func (c *command) served(path string) (*offline.Model, error) {
	model, err := c.look(path, "")
	if err != nil {
		return nil, err
	}
	if !model.IsFolder {
		return nil, usagef("%s is a file: want the model's folder of a model repository; tritonstateful init makes one", path)
	}
	if model.Plan == nil {
		var text []string
		for _, q := range model.Questions {
			text = append(text, q.Text)
		}
		return nil, fmt.Errorf("%s would not load: %s", path, strings.Join(text, "\n"))
	}
	return model, nil
}

// verdictOf is a verdict with the difference, if there is one.
func verdictOf(r *parity.Result) string {
	if r.MaxDifference == 0 {
		return r.Verdict
	}
	return fmt.Sprintf("%s, at most %.2g", r.Verdict, r.MaxDifference)
}

func (c *command) writeCheck(w io.Writer, r *checked) {
	p := c.colors(w)
	fmt.Fprintf(w, "%s: %s of %s", p.bold(r.Model), counted(r.Lanes, "sequence"), counted(r.Steps, "step"))
	if r.Open {
		fmt.Fprintf(w, "; open axes of requests have extent %d", r.Extent)
	}
	fmt.Fprint(w, "\n\n")
	t := newTable("compared with ONNX Runtime", "values", "greatest difference", "verdict", "")
	for i := range r.Results {
		one := &r.Results[i]
		verdict, values, difference := p.good(one.Verdict), strconv.FormatInt(one.Values, 10), strconv.FormatFloat(one.MaxDifference, 'g', 3, 64)
		switch {
		case one.Verdict == parity.Skipped:
			verdict, values, difference = p.note(one.Verdict), "-", "-"
		case !one.Good():
			verdict = p.bad(one.Verdict)
		}
		t.AppendRow([]any{one.Name, values, difference, verdict, one.Where})
	}
	fmt.Fprintln(w, t.Render())
	for i, note := range r.Notes {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s: %s\n", p.note("note"), note)
	}
	if r.Passed {
		fmt.Fprintf(w, "\n%s\n", p.good("passed"))
		return
	}
	fmt.Fprintf(w, "\n%s\n", p.bad("not passed"))
}
