package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"tritonstateful/internal/cli/migrate"
)

func init() { verbs = append(verbs, migrateVerb) }

// migrateOptions are the flags of migrate.
type migrateOptions struct {
	to    string
	pairs bool
	write bool
}

func migrateVerb(c *command) *cobra.Command {
	var o migrateOptions
	verb := &cobra.Command{
		Use:   "migrate DIR",
		Short: "Rewrite config.pbtxt for this backend, for NVIDIA's stateful_backend or for Triton's onnxruntime backend",
		Long: "Shows what has to be changed in the config.pbtxt of a model's folder, or of all models of a repository, and\n" +
			"writes it with --write. Comments and the order of fields stay. Exit code 2 means that something remains to be decided.",
		Example: strings.Join([]string{
			`  tritonstateful migrate models/asr`,
			`  tritonstateful migrate models --pairs --write`,
			`  tritonstateful migrate models/asr --to triton`,
		}, "\n"),
		Args: arguments("DIR"),
		RunE: func(_ *cobra.Command, args []string) error { return c.migrate(args[0], &o) },
	}
	f := verb.Flags()
	f.StringVar(&o.to, "to", string(migrate.Stateful), "the `BACKEND` to migrate to: stateful (this one), nvidia or triton")
	f.BoolVar(&o.pairs, "pairs", false, "declare states by state_pairs instead of sequence_batching { state }")
	f.BoolVar(&o.write, "write", false, "write the files after the difference was shown")
	completeWith(verb, "to", string(migrate.Stateful), string(migrate.NVIDIA), string(migrate.Triton))
	return verb
}

// migration is the result of migrate for one file, as JSON.
type migration struct {
	File    string           `json:"file"`
	Diff    string           `json:"diff"`
	Changes []migrate.Change `json:"changes"`
	Open    []string         `json:"open"`
	Written bool             `json:"written"`
	after   string
}

func (c *command) migrate(dir string, o *migrateOptions) error {
	targets := []migrate.Target{migrate.Stateful, migrate.NVIDIA, migrate.Triton}
	switch {
	case !slices.Contains(targets, migrate.Target(o.to)):
		return usagef("--to is %q: want stateful, nvidia or triton", o.to)
	case o.pairs && o.to != string(migrate.Stateful):
		return usagef("--pairs is for --to stateful: nvidia always has state_pairs, and triton never")
	}
	files, err := configFiles(dir)
	if err != nil {
		return err
	}
	results := []*migration{}
	for _, file := range files {
		m, err := c.migrateFile(file, o)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		results = append(results, m)
	}
	if o.write {
		if err := writeAll(results); err != nil {
			return err
		}
	}
	err = c.emit(struct {
		Schema int          `json:"schema"`
		Files  []*migration `json:"files"`
	}{1, results}, func(w io.Writer) { c.printMigrations(w, results, o) })
	if err == nil && slices.ContainsFunc(results, func(m *migration) bool { return len(m.Open) > 0 }) {
		return errFound
	}
	return err
}

// configFiles are those of a model's folder, or of the folders in a repository.
func configFiles(dir string) ([]string, error) {
	const name = "config.pbtxt"
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w: want the folder of a model, or a model repository", err)
	}
	if !info.IsDir() {
		return nil, usagef("migrate: %s is no folder: want that of a model, or a model repository", dir)
	}
	if file := filepath.Join(dir, name); exists(file) {
		return []string{file}, nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", name))
	if err == nil && len(files) == 0 {
		err = usagef("migrate: there is no %s in %s, nor in a folder in it", name, dir)
	}
	return files, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func (c *command) migrateFile(file string, o *migrateOptions) (*migration, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	look := func() ([]migrate.State, error) { return c.statesOf(filepath.Dir(file)) }
	r, err := migrate.Migrate(string(text), look, migrate.Options{To: migrate.Target(o.to), Pairs: o.pairs})
	if err != nil {
		return nil, err
	}
	return &migration{
		File: file, Diff: udiff.Unified(file, file, r.Before, r.After), after: r.After,
		Changes: append([]migrate.Change{}, r.Changes...), Open: append([]string{}, r.Open...),
	}, nil
}

// statesOf looks at the states of a model.
func (c *command) statesOf(dir string) ([]migrate.State, error) {
	m, err := c.look(dir, "")
	if err != nil {
		return nil, err
	}
	if m.Plan == nil {
		var open []string
		for _, question := range m.Questions {
			open = append(open, question.Text)
		}
		return nil, fmt.Errorf("a question is open, see tritonstateful inspect: %s", strings.Join(open, "; "))
	}
	var states []migrate.State
	for i := range len(m.Plan.States) + len(m.Plan.Varying) {
		s := m.Plan.StateAt(i)
		states = append(states, migrate.State{
			Input: m.Signature.Inputs[s.In].Name, Output: m.Signature.Outputs[s.Out].Name,
			DataType: s.DType.ConfigName(), Dims: s.Dims.Without(s.Axis), BatchAxis: s.Axis,
			Begins: s.Begins, Zeros: s.Value == nil && !slices.Contains(s.Shape, 0), Varies: s.Varies(),
		})
	}
	return states, nil
}

// writeAll writes the files that change.
func writeAll(results []*migration) error {
	for _, m := range results {
		if m.Diff == "" {
			continue
		}
		info, err := os.Stat(m.File)
		if err != nil {
			return fmt.Errorf("write the migrated configuration: %w", err)
		}
		// Replaced as a whole: a server may read it at any time.
		temp := m.File + ".new"
		if err := os.WriteFile(temp, []byte(m.after), info.Mode().Perm()); err != nil {
			return fmt.Errorf("write the migrated configuration: %w", err)
		}
		if err := os.Rename(temp, m.File); err != nil {
			return fmt.Errorf("write the migrated configuration: %w", err)
		}
		m.Written = true
	}
	return nil
}

func (c *command) printMigrations(w io.Writer, results []*migration, o *migrateOptions) {
	p := c.colors(w)
	changed := 0
	for _, m := range results {
		if m.Diff == "" && len(m.Open) == 0 {
			fmt.Fprintf(w, "%s: nothing to change\n", m.File)
			continue
		}
		for line := range strings.Lines(m.Diff) {
			switch {
			case strings.HasPrefix(line, "+") && !strings.HasPrefix(line, "+++"):
				line = p.good(line)
			case strings.HasPrefix(line, "-") && !strings.HasPrefix(line, "---"):
				line = p.bad(line)
			}
			fmt.Fprint(w, line)
		}
		fmt.Fprintln(w)
		for _, change := range m.Changes {
			fmt.Fprintf(w, "%s: %s\n", change.What, change.Why)
		}
		for _, open := range m.Open {
			fmt.Fprintf(w, "%s %s\n", p.note("to decide:"), open)
		}
		fmt.Fprintln(w)
		if m.Diff != "" {
			changed++
		}
	}
	switch {
	case changed == 0:
	case o.write:
		fmt.Fprintf(w, "wrote %s\n", counted(changed, "file"))
	default:
		fmt.Fprintf(w, "%s would change: --write writes\n", counted(changed, "file"))
	}
}
