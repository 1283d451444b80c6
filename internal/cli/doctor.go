package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tritonstateful/internal/cli/doctor"
)

func init() { verbs = append(verbs, doctorVerb) }

func doctorVerb(c *command) *cobra.Command {
	var pid int
	var rules bool
	verb := &cobra.Command{
		Use:   "doctor [URL|DIR]...",
		Short: "Look for what commonly goes wrong with servers, models and deployments",
		Long: "Applies rules to what it is shown: the URL of a server's HTTP service, the process of a server on this machine\n" +
			"(--pid), and folders with models, deployments or the installed backend. Exit code 2 means that there is a problem.",
		Example: strings.Join([]string{
			`  tritonstateful doctor http://localhost:8000 deploy/`,
			`  tritonstateful doctor --pid 4711 /models /opt/tritonserver/backends/stateful`,
		}, "\n"),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && pid == 0 && !rules {
				return usagef("doctor has nothing to look at: want the URL of a server, a folder or --pid")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if rules {
				return c.doctorRules()
			}
			return c.doctor(args, pid)
		},
	}
	verb.Flags().IntVar(&pid, "pid", 0, "the process of a tritonserver on this machine")
	verb.Flags().BoolVar(&rules, "rules", false, "list the rules")
	return verb
}

// doctorRules lists all rules.
func (c *command) doctorRules() error {
	return c.emit(struct {
		Schema int           `json:"schema"`
		Rules  []doctor.Rule `json:"rules"`
	}{1, doctor.Rules}, func(w io.Writer) {
		t := newTable("rule", "fault", "see docs/")
		for i := range doctor.Rules {
			t.AppendRow([]any{doctor.Rules[i].ID, doctor.Rules[i].Title, doctor.Rules[i].Page})
		}
		fmt.Fprintln(w, t.Render())
	})
}

func (c *command) doctor(args []string, pid int) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	subject, skipped := &doctor.Subject{}, []string{}
	if pid != 0 {
		if err := subject.LookAtProcess(pid); err != nil {
			return err
		}
	}
	for _, arg := range args {
		info, err := os.Stat(arg)
		switch {
		case err == nil && info.IsDir():
			more, err := subject.Read(arg)
			if err != nil {
				return err
			}
			skipped = append(skipped, more...)
		case err != nil && strings.Contains(arg, ":"):
			if err := subject.Ask(ctx, arg); err != nil {
				return err
			}
		default:
			return usagef("doctor: %s is no folder: want one, or the URL of a server such as http://localhost:8000", arg)
		}
	}
	report := doctor.Examine(subject)
	err := c.emit(struct {
		Schema int `json:"schema"`
		*doctor.Report
		Skipped []string `json:"skipped"`
	}{1, report, skipped}, func(w io.Writer) { c.printReport(w, report, skipped) })
	if err == nil && report.Problems() > 0 {
		return errFound
	}
	return err
}

func (c *command) printReport(w io.Writer, r *doctor.Report, skipped []string) {
	p := c.colors(w)
	for i := range r.Findings {
		f := &r.Findings[i]
		severity := p.note("note")
		if f.Severity == doctor.Problem {
			severity = p.bad("problem")
		}
		at := slices.IndexFunc(doctor.Rules, func(rule doctor.Rule) bool { return rule.ID == f.Rule })
		fmt.Fprintf(w, "%s %s: %s\n", severity, p.bold(f.Rule), f.Where)
		fmt.Fprintf(w, "  seen    %s\n", f.Evidence)
		fmt.Fprintf(w, "  remedy  %s\n", f.Remedy)
		fmt.Fprintf(w, "  see     docs/%s; %s\n\n", doctor.Rules[at].Page, doctor.Rules[at].Thread)
	}
	for _, file := range skipped {
		fmt.Fprintf(w, "%s: not read: %s\n\n", p.note("note"), file)
	}
	problems := r.Problems()
	summary := counted(problems, "problem") + ", " + counted(len(r.Findings)-problems, "note")
	if problems > 0 {
		summary = p.bad(summary)
	} else {
		summary = p.good(summary)
	}
	fmt.Fprintln(w, summary)
	if len(r.Fine) > 0 {
		fmt.Fprintf(w, "nothing found by: %s\n", strings.Join(r.Fine, ", "))
	}
	for _, needs := range needed(r.Unseen) {
		fmt.Fprintf(w, "not looked at: %s: want %s\n", strings.Join(needs.rules, ", "), needs.what)
	}
}

// A need is what several rules would have to be shown.
type need struct {
	what  string
	rules []string
}

func needed(unseen []doctor.Unseen) (needs []need) {
	for _, u := range unseen {
		i := slices.IndexFunc(needs, func(n need) bool { return n.what == u.Needs })
		if i < 0 {
			i, needs = len(needs), append(needs, need{what: u.Needs})
		}
		needs[i].rules = append(needs[i].rules, u.Rule)
	}
	return needs
}
