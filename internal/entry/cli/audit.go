package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"triprize/internal/maintenance/audit"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
)

// auditTimeout replaces the timeouts of a statement and of an idle transaction: the
// audit reads all data, as of one moment.
const auditTimeout = 6 * time.Hour

func auditCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "Recompute everything and list what breaks an invariant; status 1 when something does",
		Long: `Recompute everything from the rows, as of one moment, and list what breaks an
invariant: owners, counters, limits, holds, purchases and their payments, the
ledger and every wallet, every draw. It changes nothing, and takes no lock that
others wait for. On a large database it takes long, and vacuum waits for it: run it
on a replica there. Status 1 when something is broken. The sweep audit does the same
on the running system, a part at a time, and --stored lists what it has found.`,
		Args: cobra.NoArgs,
	}
	file := configFlag(c)
	limit := c.Flags().Int("limit", 20, "most violations of each invariant to list")
	stored := c.Flags().Bool("stored", false, "list what the sweep audit has found, and recompute nothing")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if *limit < 1 || *limit > 10_000 {
			return fmt.Errorf("--limit must be 1 to 10000")
		}
		settings, err := config.Load(*file)
		if err != nil {
			return err
		}
		settings.Postgres.StatementTimeout, settings.Postgres.IdleInTransactionTimeout = auditTimeout, auditTimeout
		pool, err := postgres.Open(cmd.Context(), settings.Postgres, "triprize-audit")
		if err != nil {
			return err
		}
		defer pool.Close()
		if *stored {
			return reportStored(cmd, pool, *asJSON)
		}
		found, err := audit.Check(cmd.Context(), pool, *limit)
		if err != nil {
			return err
		}
		return reportAudit(cmd.OutOrStdout(), found, *asJSON)
	}
	c.AddCommand(auditPaymentsCommand())
	return c
}

// reportAudit prints the violations, and returns an error when there are any.
func reportAudit(out io.Writer, found []audit.Violation, asJSON bool) error {
	if asJSON {
		if found == nil {
			found = []audit.Violation{}
		}
		err := json.NewEncoder(out).Encode(map[string]any{"ok": len(found) == 0, "invariants": audit.Invariants(), "violations": found})
		if err != nil {
			return err
		}
	} else {
		for _, v := range found {
			say(out, "broken: %s\n        %s", v.Invariant, v.Subject)
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("%d violations", len(found))
	}
	if !asJSON {
		say(out, "%d invariants hold; what is sealed was not opened: draw_key_wrong in /readyz tells whether the keys of a process open it", audit.Invariants())
	}
	return nil
}

// reportStored prints the violations that are stored, and returns an error when there are any.
func reportStored(cmd *cobra.Command, db postgres.DB, asJSON bool) error {
	found, err := audit.ListStored(cmd.Context(), db)
	if err != nil {
		return err
	}
	if asJSON {
		err = json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"ok": len(found) == 0, "stored": found})
	}
	for _, v := range found {
		if !asJSON {
			say(cmd.OutOrStdout(), "broken: %s of %s (%s), found %s, seen %s", v.Check, v.ID, v.Walk, v.FoundAt.Format(time.RFC3339), v.SeenAt.Format(time.RFC3339))
			for _, s := range v.Subjects {
				say(cmd.OutOrStdout(), "        %s", s)
			}
		}
	}
	if len(found) == 0 && !asJSON {
		say(cmd.OutOrStdout(), "nothing is stored")
	}
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%d violations", len(found))
	}
	return err
}
