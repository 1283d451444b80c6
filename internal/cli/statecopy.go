package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tritonstateful/internal/cli/saved"
	"tritonstateful/internal/statestore"
)

func (c *command) stateExport() *cobra.Command {
	var namespace, to string
	verb := &cobra.Command{
		Use:   "export STORE [KEY...] --to FILE",
		Short: "Copy saved states into a file",
		Long: "Writes saved states into a tar archive, of which every member is the value of one sequence as\n" +
			"docs/state-store.md describes it. Without a KEY it exports all of --namespace, or all there is.",
		Args: argumentRange(1, -1, "STORE [KEY...]"),
		RunE: func(_ *cobra.Command, args []string) error {
			keys, err := keysOf(args[1:])
			switch {
			case err != nil:
				return err
			case to == "":
				return usagef("state export has no file: want --to FILE")
			case namespace != "" && len(keys) > 0:
				return usagef("state export has both keys and --namespace: want one of them")
			}
			if err := mustExist(args[0]); err != nil {
				return err
			}
			return withStore(args[0], func(ctx context.Context, store statestore.Store) error {
				count, err := exportTo(ctx, store, keys, namespace, to)
				if err != nil {
					return err
				}
				return c.emit(struct {
					Schema    int    `json:"schema"`
					Sequences int    `json:"sequences"`
					File      string `json:"file"`
				}{1, count, to}, func(w io.Writer) { fmt.Fprintf(w, "exported %s to %s\n", counted(count, "sequence"), to) })
			})
		},
	}
	verb.Flags().StringVar(&to, "to", "", "`FILE` to write")
	verb.Flags().StringVar(&namespace, "namespace", "", "export this `NAMESPACE`, such as model/1")
	return verb
}

// exportTo writes the archive. A file that is not complete is removed.
func exportTo(ctx context.Context, store statestore.Store, keys []string, namespace, to string) (count int, err error) {
	named := len(keys) > 0
	if !named {
		if keys, err = saved.Keys(ctx, store, namespace); err != nil {
			return 0, err
		}
	}
	file, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) // states are what users said
	if err != nil {
		return 0, fmt.Errorf("export saved states: %w", err)
	}
	buffered := bufio.NewWriter(file)
	count, err = saved.Export(ctx, store, keys, buffered)
	if err == nil && named && count < len(keys) {
		err = fmt.Errorf("%d of the %d keys have no saved state", len(keys)-count, len(keys))
	}
	if err = errors.Join(err, buffered.Flush(), file.Close()); err != nil {
		_ = os.Remove(to)
	}
	return count, err
}

func (c *command) stateImport() *cobra.Command {
	var o saved.ImportOptions
	verb := &cobra.Command{
		Use:   "import STORE FILE",
		Short: "Save states that were exported",
		Long: "Saves the states of an archive that export wrote. Sequences that are saved already are left alone, and end the\n" +
			"import, unless --overwrite is given. A server that serves an imported sequence drops it; a resume continues from the\n" +
			"imported state.",
		Args: arguments("STORE", "FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			if o.TTL < 0 || strings.ContainsAny(o.Namespace, "{}\x00\n") {
				return usagef("state import: want a --ttl that is not negative, and a --namespace without braces and line ends")
			}
			file, err := os.Open(args[1])
			if err != nil {
				return fmt.Errorf("import saved states: %w", err)
			}
			defer file.Close()
			return withStore(args[0], func(ctx context.Context, store statestore.Store) error {
				keys, err := saved.Import(ctx, store, bufio.NewReader(file), o)
				if err != nil {
					if errors.Is(err, saved.ErrIsSaved) {
						err = fmt.Errorf("%w; --overwrite replaces it", err)
					}
					return fmt.Errorf("%w (imported before it: %s)", err, counted(len(keys), "sequence"))
				}
				return c.emitKeys("imported", keys)
			})
		},
	}
	verb.Flags().DurationVar(&o.TTL, "ttl", 24*time.Hour, "how long the states are kept if no server saves them again; 0 is for ever")
	verb.Flags().StringVar(&o.Namespace, "namespace", "", "import into this `NAMESPACE`, such as that of a new version of the model")
	verb.Flags().BoolVar(&o.Overwrite, "overwrite", false, "replace what is saved already")
	return verb
}
