package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
				count, damaged, err := exportTo(ctx, store, keys, namespace, to)
				if err != nil {
					return err
				}
				err = c.emit(struct {
					Schema    int      `json:"schema"`
					Sequences int      `json:"sequences"`
					Damaged   []string `json:"damaged"`
					File      string   `json:"file"`
				}{1, count, damaged, to}, func(w io.Writer) {
					for _, key := range damaged {
						fmt.Fprintln(w, "left out, because it is damaged:", key)
					}
					fmt.Fprintf(w, "exported %s to %s\n", counted(count, "sequence"), to)
				})
				if err == nil && len(damaged) > 0 {
					return errFound
				}
				return err
			})
		},
	}
	verb.Flags().StringVar(&to, "to", "", "`FILE` to write")
	verb.Flags().StringVar(&namespace, "namespace", "", "export this `NAMESPACE`, such as model/1")
	return verb
}

// exportTo writes the archive. It takes the place of another one only when it is complete. damaged are the keys that it leaves
// out, as users see them.
func exportTo(ctx context.Context, store statestore.Store, keys []string, namespace, to string) (count int, damaged []string, err error) {
	named := len(keys) > 0
	if !named {
		if keys, err = saved.Keys(ctx, store, namespace); err != nil {
			return 0, nil, err
		}
	}
	file, finish, err := replace(to)
	if err != nil {
		return 0, nil, fmt.Errorf("export saved states: %w", err)
	}
	buffered := bufio.NewWriter(file)
	count, damaged, err = saved.Export(ctx, store, keys, buffered)
	if lost := len(keys) - count - len(damaged); err == nil && named && lost > 0 {
		err = fmt.Errorf("%d of the %d keys have no saved state", lost, len(keys))
	}
	if err = finish(errors.Join(err, buffered.Flush())); err != nil {
		return count, nil, err
	}
	shown := make([]string, len(damaged))
	for i, key := range damaged {
		shown[i] = saved.Show(key)
	}
	return count, shown, nil
}

// replace opens a file that takes the place of another one at finish, if that is given no error. It is for its owner alone:
// states are what users said. What is no file, such as a pipe, is written to as it is.
func replace(path string) (file *os.File, finish func(error) error, err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		file, err = os.OpenFile(path, os.O_WRONLY, 0)
		return file, func(err error) error { return errors.Join(err, file.Close()) }, err
	}
	file, err = os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
	return file, func(err error) error {
		if err = errors.Join(err, file.Close()); err == nil {
			err = os.Rename(file.Name(), path)
		}
		if err != nil {
			_ = os.Remove(file.Name())
		}
		return err
	}, err
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
