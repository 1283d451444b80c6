package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tritonstateful/internal/cli/saved"
	"tritonstateful/internal/statestore"
)

func init() { verbs = append(verbs, stateVerb) }

// stateVerb is the verb state: what a state store has. Its own verbs are here and in statecopy.go, as each is a call of
// package saved.
func stateVerb(c *command) *cobra.Command {
	verb := &cobra.Command{
		Use:   "state",
		Short: "List, show, drop, export and import saved states",
		Long: "Looks at the states that servers have saved in a state store. STORE is its URL as in the parameter state_store:\n" +
			"file:/FOLDER, valkey://HOST[:PORT][/DB], valkeys://..., unix:///SOCKET, or env for that of STATEFUL_STORE_URL.\n" +
			"KEY is NAMESPACE:ID, such as model/1:7, 'model/1:\"call\"' or model/1:@call.",
		Example: strings.Join([]string{
			`  tritonstateful state list file:/var/lib/states`,
			`  tritonstateful state show valkey://cache 'vad/1:"call-1"'`,
			`  tritonstateful state export file:/var/lib/states --namespace vad/1 --to states.tar`,
		}, "\n"),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("state has no verb: want list, show, drop, export or import")
			}
			return usagef("state has no verb %q: want list, show, drop, export or import", args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	verb.AddCommand(c.stateList(), c.stateShow(), c.stateDrop(), c.stateExport(), c.stateImport())
	return verb
}

// withStore calls f with an open store. An interrupt ends the calls of f.
func withStore(address string, f func(ctx context.Context, store statestore.Store) error) error {
	store, err := statestore.Open(address)
	if err != nil {
		return usageError{err}
	}
	defer store.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return f(ctx, store)
}

// mustExist refuses a folder that is not there: a store would make it, and have nothing.
func mustExist(address string) error {
	folder, isFolder := strings.CutPrefix(address, "file:")
	if !isFolder {
		return nil
	}
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the state store %s: there is no such folder", address)
	}
	return nil
}

func (c *command) stateList() *cobra.Command {
	var keysOnly bool
	verb := &cobra.Command{
		Use:   "list STORE [NAMESPACE]",
		Short: "List the sequences of a namespace, or of all",
		Args:  argumentRange(1, 2, "STORE [NAMESPACE]"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := mustExist(args[0]); err != nil {
				return err
			}
			namespace := strings.Join(args[1:], "")
			return withStore(args[0], func(ctx context.Context, store statestore.Store) error {
				if keysOnly {
					return c.listKeys(ctx, store, namespace)
				}
				found, err := saved.List(ctx, store, namespace)
				if err != nil {
					return err
				}
				err = c.emit(struct {
					Schema    int               `json:"schema"`
					Sequences []*saved.Sequence `json:"sequences"`
				}{1, found}, func(w io.Writer) { printSequences(w, found) })
				if err == nil && slices.ContainsFunc(found, func(s *saved.Sequence) bool { return s.Damage != "" }) {
					return errFound
				}
				return err
			})
		},
	}
	verb.Flags().BoolVar(&keysOnly, "keys", false, "list keys only: values are not read")
	return verb
}

func (c *command) listKeys(ctx context.Context, store statestore.Store, namespace string) error {
	keys, err := saved.Keys(ctx, store, namespace)
	if err != nil {
		return err
	}
	shown := make([]string, len(keys))
	for i, key := range keys {
		shown[i] = saved.Show(key)
	}
	return c.emit(struct {
		Schema int      `json:"schema"`
		Keys   []string `json:"keys"`
	}{1, shown}, func(w io.Writer) {
		for _, key := range shown {
			fmt.Fprintln(w, key)
		}
	})
}

func printSequences(w io.Writer, found []*saved.Sequence) {
	if len(found) == 0 {
		fmt.Fprintln(w, "nothing is saved")
		return
	}
	t := newTable("key", "steps", "saved", "bytes", "states", "model", "layout")
	total := 0
	for _, s := range found {
		total += s.Bytes
		if s.Before != nil {
			total += s.Before.Bytes
		}
		switch {
		case s.Bytes == 0:
			t.AppendRow([]any{s.Key, "-", "-", 0, "ended, or not saved yet"})
		case s.Damage != "":
			t.AppendRow([]any{s.Key, "-", "-", s.Bytes, "damaged: " + s.Damage})
		default:
			t.AppendRow([]any{s.Key, s.Steps, clock(s.SavedAt), s.Bytes, len(s.States), s.Model, s.Layout})
		}
	}
	fmt.Fprintln(w, t.Render())
	fmt.Fprintf(w, "\n%s, %s\n", counted(len(found), "sequence"), counted(total, "byte"))
}

func clock(at time.Time) string { return at.Format(time.DateTime) + " UTC" }

func (c *command) stateShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show STORE KEY",
		Short: "Show what is saved of one sequence",
		Args:  arguments("STORE", "KEY"),
		RunE: func(_ *cobra.Command, args []string) error {
			key, err := saved.Key(args[1])
			if err != nil {
				return usageError{err}
			}
			if err := mustExist(args[0]); err != nil {
				return err
			}
			return withStore(args[0], func(ctx context.Context, store statestore.Store) error {
				s, err := saved.Read(ctx, store, key)
				if err != nil {
					return err
				}
				err = c.emit(struct {
					Schema int `json:"schema"`
					*saved.Sequence
				}{1, s}, func(w io.Writer) { printSequence(w, s) })
				if err == nil && s.Damage != "" {
					return errFound
				}
				return err
			})
		},
	}
}

func printSequence(w io.Writer, s *saved.Sequence) {
	t := newTable()
	t.AppendRow([]any{"key", s.Key})
	t.AppendRow([]any{"owner", s.Owner})
	switch {
	case s.Damage != "":
		t.AppendRow([]any{"damaged", s.Damage})
	case s.Bytes == 0:
		t.AppendRow([]any{"saved", "nothing: the sequence has ended, or is not saved yet"})
	default:
		t.AppendRow([]any{"steps", s.Steps})
		t.AppendRow([]any{"saved", clock(s.SavedAt)})
		t.AppendRow([]any{"bytes", s.Bytes})
		t.AppendRow([]any{"model", s.Model})
		t.AppendRow([]any{"layout", s.Layout})
		t.AppendRow([]any{"counters", strings.Trim(fmt.Sprint(s.Counters), "[]")})
	}
	if b := s.Before; b != nil && b.Damage != "" {
		t.AppendRow([]any{"before", "damaged: " + b.Damage})
	} else if b != nil {
		t.AppendRow([]any{"before", fmt.Sprintf("%d steps, %s, %s", b.Steps, clock(b.SavedAt), counted(b.Bytes, "byte"))})
	}
	fmt.Fprintln(w, t.Render())
	if len(s.States) == 0 {
		return
	}
	t = newTable("state", "type", "shape", "bytes", "min", "mean", "max", "not finite")
	for _, state := range s.States {
		t.AppendRow([]any{state.Name, state.Datatype, state.Shape, state.Bytes, figure(state.Min), figure(state.Mean), figure(state.Max), state.NotFinite})
	}
	fmt.Fprintf(w, "\n%s\n", t.Render())
}

// figure shows a number of a state that has one.
func figure(f *float64) string {
	if f == nil {
		return "-"
	}
	return fmt.Sprintf("%.4g", *f)
}

func (c *command) stateDrop() *cobra.Command {
	var takeOver bool
	verb := &cobra.Command{
		Use:   "drop STORE KEY...",
		Short: "Delete what is saved of sequences",
		Long: "Deletes what is saved of sequences. A server that serves one of them saves it again when it is due; with\n" +
			"--take-over, the store refuses that, and the server drops the sequence.",
		Args: argumentRange(2, -1, "STORE KEY..."),
		RunE: func(_ *cobra.Command, args []string) error {
			keys, err := keysOf(args[1:])
			if err != nil {
				return err
			}
			if err := mustExist(args[0]); err != nil {
				return err
			}
			return withStore(args[0], func(ctx context.Context, store statestore.Store) error {
				for _, key := range keys {
					if err := saved.Drop(ctx, store, key, takeOver); err != nil {
						return err
					}
				}
				return c.emitKeys("dropped", keys)
			})
		},
	}
	verb.Flags().BoolVar(&takeOver, "take-over", false, "have the servers that serve the sequences drop them too")
	return verb
}

func keysOf(written []string) (keys []string, err error) {
	for _, text := range written {
		key, err := saved.Key(text)
		if err != nil {
			return nil, usageError{err}
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// emitKeys prints what was done with which keys.
func (c *command) emitKeys(done string, keys []string) error {
	shown := make([]string, len(keys))
	for i, key := range keys {
		shown[i] = saved.Show(key)
	}
	return c.emit(struct {
		Schema int      `json:"schema"`
		Done   string   `json:"done"`
		Keys   []string `json:"keys"`
	}{1, done, shown}, func(w io.Writer) {
		for _, key := range shown {
			fmt.Fprintln(w, done, key)
		}
	})
}

// argumentRange wants from least to most arguments; -1 is any number.
func argumentRange(least, most int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return usagef("%s has %d arguments: want %s", cmd.CommandPath(), len(args), names)
		}
		return nil
	}
}
