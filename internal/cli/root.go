package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tritonstateful/internal/version"
)

// The exit codes.
const (
	exitFine   = 0
	exitFailed = 1
	exitFound  = 2
	exitUsage  = 64 // EX_USAGE of sysexits.h
)

// errFound says that the verb has printed a result which scripts should not pass over: an open question, a failed check.
var errFound = errors.New("see the result")

// A usageError is about the arguments of a verb.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// command is what all verbs share.
type command struct {
	stdout, stderr io.Writer
	json           bool
	library        string // the path of ONNX Runtime, from --onnxruntime
}

// verbs make the verbs, in the order in which help lists them.
var verbs = []func(*command) *cobra.Command{inspectVerb, initVerb, checkVerb, planVerb}

// Main runs the command with these arguments, and returns its exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	out := &resultWriter{Writer: stdout}
	c := &command{stdout: out, stderr: stderr}
	root := c.root()
	root.SetArgs(args)
	code := c.exit(root.Execute())
	if out.err == nil {
		return code
	}
	fmt.Fprintf(stderr, "%s write the result: %s\n", c.colors(stderr).bad("tritonstateful:"), out.err)
	return exitFailed
}

func (c *command) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "tritonstateful",
		Short:         "Serve stateful ONNX models with Triton's stateful backend",
		Version:       version.Number,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(root *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return nil
			case len(root.SuggestionsFor(args[0])) > 0:
				return usagef("there is no verb %q: did you mean %s?", args[0], strings.Join(root.SuggestionsFor(args[0]), " or "))
			}
			return usagef("there is no verb %q: tritonstateful --help lists them", args[0])
		},
		SuggestionsMinimumDistance: 2,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cobra.EnableCommandSorting = false
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	root.SetVersionTemplate("tritonstateful {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	root.PersistentFlags().BoolVar(&c.json, "json", false, "print the result as JSON")
	root.PersistentFlags().StringVar(&c.library, "onnxruntime", "", "`PATH` of libonnxruntime.so (default: that of the backend, in ../backends/stateful from this command or in "+backendFolder+")")
	for _, verb := range verbs {
		root.AddCommand(verb(c))
	}
	root.InitDefaultCompletionCmd(root.Name())
	for _, each := range root.Commands() {
		if each.Name() == "completion" {
			each.Args = func(_ *cobra.Command, args []string) error {
				if len(args) > 0 {
					return usagef("there is no completion for %q: want bash, zsh, fish or powershell", args[0])
				}
				return nil
			}
			each.RunE = func(verb *cobra.Command, _ []string) error { return verb.Help() }
		}
	}
	return root
}

// flagError says what is wrong with a flag in the words of this command.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return usageError{err}
	}
	want := map[string]string{
		"int": "a whole number", "int64": "a whole number", "float64": "a number", "duration": "a time, such as 10s or 5m", "bool": "true or false",
	}[invalid.GetFlag().Value.Type()]
	if want == "" {
		return usageError{err}
	}
	return usagef("--%s is %q: want %s", invalid.GetFlag().Name, invalid.GetValue(), want)
}

// completeWith has shells complete a flag with these values.
func completeWith(verb *cobra.Command, flag string, values ...string) {
	if err := verb.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag does not exist: a fault of the verb
	}
}

// exit prints an error, and returns the exit code that it stands for. With --json the error is an object, so that a script
// always reads one.
func (c *command) exit(err error) int {
	switch {
	case err == nil:
		return exitFine
	case errors.Is(err, errFound):
		return exitFound
	}
	if c.json {
		_ = c.emit(struct {
			Schema int    `json:"schema"`
			Error  string `json:"error"`
		}{1, err.Error()}, nil)
	} else {
		fmt.Fprintf(c.stderr, "%s %s\n", c.colors(c.stderr).bad("tritonstateful:"), err)
	}
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// arguments wants as many arguments as a verb has names for: "MODEL.onnx", "DIR".
func arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usagef("%s has %d arguments: want %s", cmd.CommandPath(), len(args), strings.Join(names, " "))
		}
		return nil
	}
}
