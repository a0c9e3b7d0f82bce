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

	"triprize/internal/platform/config"
)

func findCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "find ANYTHING",
		Short: "Say what an id or a word is, its state, and what belongs to it; status 1 when it is nothing",
		Long: fmt.Sprintf(`Say what an id or a word is, its state, and what belongs to it: the id of a job, campaign,
purchase, hold, refund, wallet, webhook event or anything else, an idempotency key, the
reference of a payment, an id of the provider (pi_, re_, du_, evt_, txn_), a user, a client,
the prefix of an API key, the id of a request. Of each kind it shows the newest ten.

The id of a request, and the reference of a purchase that has failed, are searched in the
newest %d jobs. Older ones are in the log, or in GET /v1/jobs?reference= with a user.
It reads the database, and changes nothing. Status 1 when nothing is found.`, searchedJobs),
		Args: cobra.ExactArgs(1),
	}
	asJSON := c.Flags().Bool("json", false, "print JSON")
	return onDatabase(c, func(cmd *cobra.Command, args []string, db *pgxpool.Pool, _ config.Settings) error {
		hits, err := lookUp(cmd.Context(), db, args[0])
		switch {
		case err != nil:
			return err
		case len(hits) > 0 || *asJSON:
			err = hitTable.print(cmd.OutOrStdout(), hits, *asJSON)
		}
		if err == nil && len(hits) == 0 {
			err = fmt.Errorf("nothing found; it is no id, key, reference or name of: %s", strings.Join(lookedUp(), ", "))
		}
		return err
	})
}

var hitTable = table[hit]{"found", "WHAT\tID\tSTATE\tSEE\tFACTS", func(h hit) string {
	return cells(h.What, &h.ID, &h.State, h.See, factsOf(h.Facts))
}}

// factsOf writes an object as name=value, sorted by name.
func factsOf(object json.RawMessage) *string {
	var all map[string]any
	numbers := json.NewDecoder(bytes.NewReader(object))
	numbers.UseNumber()
	_ = numbers.Decode(&all) // the database has made it
	list := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, fmt.Sprintf("%s=%v", name, all[name]))
	}
	text := strings.Join(list, " ")
	return &text
}
