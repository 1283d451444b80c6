package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"tritonstateful/internal/version"
)

func init() { verbs = append(verbs, versionVerb) }

// versionVerb is the verb version: what this command was built from. The library has the same version: both come in one
// archive.
func versionVerb(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the version, and the commit that this was built from",
		Example: "  tritonstateful version --json",
		Args:    arguments(),
		RunE: func(*cobra.Command, []string) error {
			result := struct {
				Schema   int    `json:"schema"`
				Version  string `json:"version"`
				Commit   string `json:"commit"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{1, version.Number, version.Commit(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return c.emit(result, func(w io.Writer) {
				fmt.Fprintf(w, "tritonstateful %s, commit %s, %s, %s\n", result.Version, result.Commit, result.Go, result.Platform)
			})
		},
	}
}
