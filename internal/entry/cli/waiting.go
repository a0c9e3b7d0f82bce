package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/config"
	"triprize/internal/store/job"
)

// What the commands about payments and about refunds that wait have in common.

// cliClient is the client of what this tool does, in the records.
const cliClient = "triprize"

// The longest reason for the records and the longest name, in characters, and the longest
// list.
const (
	maxReason = 500
	maxName   = 100
	maxList   = 10_000
)

// listing is the flags of a command that lists what waits.
type listing struct {
	file   *string
	limit  *int
	asJSON *bool
}

func listingFlags(c *cobra.Command, what string) listing {
	return listing{file: configFlag(c), limit: c.Flags().Int("limit", 100, "most "+what+" to list"), asJSON: c.Flags().Bool("json", false, "print JSON")}
}

func (l listing) check() error {
	if *l.limit < 1 || *l.limit > maxList {
		return fmt.Errorf("--limit must be 1 to %d", maxList)
	}
	return nil
}

// more is how many entries to read, to know whether there are more than the limit.
func (l listing) more() int { return *l.limit + 1 }

// cut leaves out what is over the limit, and says so on news.
func cut[T any](list []T, limit int, news io.Writer) []T {
	switch {
	case len(list) <= limit:
		return list
	case limit == maxList:
		say(news, "there are more than these %d", limit)
	default:
		say(news, "there are more than these %d: raise --limit", limit)
	}
	return list[:limit]
}

// operatorBy is the name of the user of this tool in the records.
func operatorBy(by string) string { return "operator:" + cliClient + "/" + by }

// checkRecord refuses a reason or a name that the records cannot have.
func checkRecord(reason, by string) error {
	return errors.Join(checkText("--reason", reason, maxReason), checkText("--by", by, maxName))
}

func checkText(flag, text string, most int) error {
	switch {
	case strings.TrimSpace(text) == "":
		return fmt.Errorf("%s must not be empty", flag)
	case len([]rune(text)) > most:
		return fmt.Errorf("%s may have %d characters at most", flag, most)
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || r == '\uFFFD' }):
		return fmt.Errorf("%s must be text, without control characters", flag)
	}
	return nil
}

// command runs a command on a payment or a refund, and prints what became of it. id is
// what the command line has, and what says of what it should be the id.
func command(cmd *cobra.Command, file, id, what string, kind job.Kind,
	do func(ctx context.Context, db *pgxpool.Pool, settings config.Settings, r job.Request, id uuid.UUID) (job.Accepted, error),
) error {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return fmt.Errorf("%q is not the id of a %s", id, what)
	}
	settings, err := config.Load(file)
	if err != nil {
		return err
	}
	return withDatabase(cmd.Context(), file, func(db *pgxpool.Pool) error {
		request := job.Request{ID: uuidv7.New(), Client: cliClient, Key: uuid.NewString(), Kind: kind, Keep: settings.Retention.Jobs}
		done, err := do(cmd.Context(), db, settings, request, parsed)
		if err != nil {
			return err
		}
		if done.Job.Problem != nil {
			return done.Job.Problem.Err()
		}
		say(cmd.OutOrStdout(), "%s", done.Job.Result)
		return nil
	})
}

// cell is a text as a table shows it: in one line, - for nothing.
func cell(s *string) string {
	if s == nil || *s == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, *s)
}
