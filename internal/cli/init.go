package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tritonstateful/internal/cli/offline"
	"tritonstateful/internal/cli/scaffold"
	"tritonstateful/internal/modelconfig"
)

// initialization is the result of init as JSON; docs/command-init.md describes it.
type initialization struct {
	Schema    int                `json:"schema"`
	Model     string             `json:"model"`
	Directory string             `json:"directory"`
	Written   []string           `json:"written"`
	Config    string             `json:"config"`
	Questions []offline.Question `json:"questions"`
	Warnings  []string           `json:"warnings"`
}

// initOptions are the flags of init.
type initOptions struct {
	name, repository, config string
	parameters               []string
	force                    bool
	scaffold.Options
}

func initVerb(c *command) *cobra.Command {
	var o initOptions
	verb := &cobra.Command{
		Use:   "init MODEL.onnx",
		Short: "Make the folder of a model in a model repository, with a commented config.pbtxt",
		Long: "Makes REPOSITORY/NAME with config.pbtxt and 1/model.onnx. Nothing that is there is overwritten without --force.\n" +
			"Exit code 2 means that a question is open: nothing is written, and the output has the line that decides it, for --parameter or --config.",
		Example: strings.Join([]string{
			`  tritonstateful init vad.onnx`,
			`  tritonstateful init vad.onnx --name vad --parameter 'constant_inputs=sr = 16000'`,
			`  tritonstateful init encoder.onnx --config config.pbtxt --scheduler direct`,
		}, "\n"),
		Args: arguments("MODEL.onnx"),
		RunE: func(_ *cobra.Command, args []string) error { return c.initialize(args[0], &o) },
	}
	f := verb.Flags()
	f.StringVar(&o.name, "name", "", "`NAME` of the model (default: that of the file)")
	f.StringVar(&o.repository, "repository", "model_repository", "model repository, a `DIR`")
	f.StringVar(&o.config, "config", "", "a config.pbtxt to begin with, a `FILE`")
	f.StringArrayVar(&o.parameters, "parameter", nil, "a parameter `KEY=VALUE` of the configuration; can be given several times")
	f.StringVar(&o.Scheduler, "scheduler", scaffold.Oldest, "scheduler of a model with states: "+strings.Join(scaffold.Schedulers, ", "))
	f.BoolVar(&o.Short, "short", false, "write only what the backend does not fill in, without comments")
	f.BoolVar(&o.force, "force", false, "overwrite files")
	completeWith(verb, "scheduler", scaffold.Schedulers...)
	return verb
}

func (c *command) initialize(path string, o *initOptions) error {
	if !slices.Contains(scaffold.Schedulers, o.Scheduler) {
		return usagef("--scheduler is %q: want %s", o.Scheduler, strings.Join(scaffold.Schedulers, ", "))
	}
	if o.name != "" && o.name != filepath.Base(filepath.Clean(o.name)) || o.name == "." || o.name == ".." {
		return usagef("--name is %q: want the name of a folder in the --repository", o.name)
	}
	files, err := offline.Read(path, o.config)
	if err != nil {
		return err
	}
	if err := o.complete(files); err != nil {
		return err
	}
	runtime, err := c.runtime()
	if err != nil {
		return err
	}
	model, err := files.Look(runtime.Open)
	if err != nil {
		return err
	}
	if model.Sequences() && o.Scheduler == scaffold.Free {
		scaffold.Choose(files, o.Scheduler)
		if model, err = files.Look(runtime.Open); err != nil {
			return err
		}
	}
	result := &initialization{Schema: 1, Model: model.Name, Written: []string{}, Questions: append([]offline.Question{}, model.Questions...), Warnings: append([]string{}, model.Warnings...)}
	if model.Plan != nil && !model.Sequences() && o.Scheduler != scaffold.Oldest {
		result.Warnings = append(result.Warnings, fmt.Sprintf("--scheduler %s has no effect: the model has no states", o.Scheduler))
	}
	if model.Plan != nil {
		if result.Config, err = scaffold.Configure(model, o.Options); err != nil {
			return err
		}
		if result.Directory, result.Written, err = scaffold.Write(files, o.repository, result.Config, o.force); err != nil {
			return err
		}
		again, err := c.look(result.Directory, "") // what was written is what the server will read
		if err != nil {
			return err
		}
		result.Questions = append(result.Questions, again.Questions...)
	}
	if err := c.emit(result, func(w io.Writer) { c.writeInitialization(w, result) }); err != nil {
		return err
	}
	if len(result.Questions) > 0 {
		return errFound
	}
	return nil
}

// complete adds the flags to the configuration that was given.
func (o *initOptions) complete(f *offline.Files) error {
	if o.name != "" {
		f.Name, f.Given.Name = o.name, o.name
	}
	for _, p := range o.parameters {
		key, value, ok := strings.Cut(p, "=")
		if !ok || strings.TrimSpace(key) == "" {
			return usagef("--parameter is %q: want KEY=VALUE", p)
		}
		if f.Given.Parameters == nil {
			f.Given.Parameters = map[string]*modelconfig.ModelParameter{}
		}
		f.Given.Parameters[strings.TrimSpace(key)] = &modelconfig.ModelParameter{StringValue: strings.TrimSpace(value)}
	}
	return nil
}

func (c *command) writeInitialization(w io.Writer, r *initialization) {
	p := c.colors(w)
	for _, path := range r.Written {
		fmt.Fprintf(w, "%s %s\n", p.good("wrote"), path)
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(w, "%s %s\n", p.note("warning:"), warning)
	}
	for _, q := range r.Questions {
		fmt.Fprintf(w, "%s %s\n", p.bad("open:"), q.Text)
	}
}
