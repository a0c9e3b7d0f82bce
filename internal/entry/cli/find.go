package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize/internal/entry/lookup"
	"triprize/internal/platform/config"
)

func findCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "find ID",
		Short: "Find what an id, key, reference or user is, its state, and what belongs to it; status 1 if nothing is found",
		Long: fmt.Sprintf(`Find what an ID is, its state, and what belongs to it. ID is the id of any resource (job,
campaign, purchase, hold, refund, wallet, webhook event, request, …), an idempotency key, a
payment reference, a provider id (pi_, re_, du_, evt_, txn_), a user, a client, or the prefix
of an API key. The newest ten hits of each kind are listed.

Request ids, and references of failed purchases, are searched in the newest %d jobs. For
older ones, use the log, or GET /v1/jobs?reference= with a user.
The command only reads the database. Status 1 if nothing is found.`, lookup.SearchedJobs),
		Args: cobra.ExactArgs(1),
	}
	asJSON := c.Flags().Bool("json", false, "print JSON")
	return onDatabase(c, 0, func(cmd *cobra.Command, args []string, db *pgxpool.Pool, _ config.Settings) error {
		hits, err := lookup.Find(cmd.Context(), db, args[0])
		switch {
		case err != nil:
			return err
		case len(hits) > 0 || *asJSON:
			err = hitTable.print(cmd.OutOrStdout(), hits, *asJSON)
		}
		if err == nil && len(hits) == 0 {
			err = fmt.Errorf("nothing found; searched for ids, keys, references and names of: %s", strings.Join(lookup.Kinds(), ", "))
		}
		return err
	})
}

var hitTable = table[lookup.Hit]{"found", "KIND\tID\tSTATE\tSEE\tDETAILS", func(h lookup.Hit) string {
	return cells(h.What, h.ID, h.State, h.See, factsOf(h.Facts))
}}

// factsOf writes an object as name=value, sorted by name.
func factsOf(object json.RawMessage) string {
	var all map[string]any
	numbers := json.NewDecoder(bytes.NewReader(object))
	numbers.UseNumber()
	_ = numbers.Decode(&all) // the database has made it
	list := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, fmt.Sprintf("%s=%v", name, all[name]))
	}
	return strings.Join(list, " ")
}
