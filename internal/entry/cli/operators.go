package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/job"
)

// cliClient is the client of what this tool does, in the records.
const cliClient = job.Tool

// The longest reason for the records, the longest names of an operator and of a client, in
// characters, and the longest list.
const (
	maxReason = 500
	maxName   = 100
	maxClient = 255
	maxList   = 10_000
)

// withDatabase calls do with the settings and a pool for their database.
func withDatabase(ctx context.Context, file string, do func(*pgxpool.Pool, config.Settings) error) error {
	settings, err := config.Load(file)
	if err != nil {
		return err
	}
	pool, err := postgres.Open(ctx, settings.Postgres, "triprize-cli")
	if err != nil {
		return err
	}
	defer pool.Close()
	return do(pool, settings)
}

// table is how a list is printed.
type table[T any] struct {
	name string // of the entries, in JSON too
	head string // the columns
	row  func(T) string
}

func (t table[T]) print(out io.Writer, list []T, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(map[string]any{t.name: append([]T{}, list...)})
	}
	lines := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(lines, t.head)
	for _, one := range list {
		fmt.Fprintln(lines, t.row(one))
	}
	return lines.Flush()
}

// cells joins the cells of a row.
func cells(values ...any) string {
	list := make([]string, len(values))
	for i, value := range values {
		switch value := value.(type) {
		case *string:
			list[i] = cell(value)
		case time.Time:
			list[i] = value.Format(time.DateTime)
		default:
			list[i] = fmt.Sprint(value)
		}
	}
	return strings.Join(list, "\t")
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

// lister makes c a command that lists up to --limit entries. read reads as many as most.
func lister[T any](c *cobra.Command, t table[T], read func(ctx context.Context, db *pgxpool.Pool, args []string, most int) ([]T, error)) *cobra.Command {
	file := configFlag(c)
	limit := c.Flags().Int("limit", 100, "most "+t.name+" to list")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if *limit < 1 || *limit > maxList {
			return fmt.Errorf("--limit must be 1 to %d", maxList)
		}
		return withDatabase(cmd.Context(), *file, func(db *pgxpool.Pool, _ config.Settings) error {
			list, err := read(cmd.Context(), db, args, *limit+1)
			if err != nil {
				return err
			}
			return t.print(cmd.OutOrStdout(), cut(list, *limit, cmd.ErrOrStderr()), *asJSON)
		})
	}
	return c
}

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

// lines returns a list as the tool prints it.
func lines[T, L any](list []T, line func(T) L) []L {
	all := make([]L, len(list))
	for i, one := range list {
		all[i] = line(one)
	}
	return all
}

// action is a command of an operator about one thing.
type action struct {
	use, short, long string
	what             string // of what the argument is the id: a refund
	kind             job.Kind
	by               bool   // with --by
	reason           string // with --reason, explained so; empty: without
	do               func(ctx context.Context, t target) (job.Accepted, error)
}

// target is what an action is done with.
type target struct {
	db       *pgxpool.Pool
	settings config.Settings
	request  job.Request
	id       uuid.UUID
	by       string // the operator's name in the records
	reason   string
}

func (a action) command() *cobra.Command {
	c := &cobra.Command{Use: a.use, Short: a.short, Long: a.long, Args: cobra.ExactArgs(1)}
	file := configFlag(c)
	var by, reason string
	if a.by {
		c.Flags().StringVar(&by, "by", "", "who you are, for the records")
		_ = c.MarkFlagRequired("by")
	}
	if a.reason != "" {
		c.Flags().StringVar(&reason, "reason", "", a.reason)
		_ = c.MarkFlagRequired("reason")
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		var wrong []error
		if a.reason != "" {
			wrong = append(wrong, checkText("--reason", reason, maxReason))
		}
		if a.by {
			wrong = append(wrong, checkText("--by", by, maxName))
		}
		if err := errors.Join(wrong...); err != nil {
			return err
		}
		id, err := idOf(a.what, args[0])
		if err != nil {
			return err
		}
		return withDatabase(cmd.Context(), *file, func(db *pgxpool.Pool, settings config.Settings) error {
			done, err := a.do(cmd.Context(), target{db, settings, requestOf(a.kind, settings), id, "operator:" + cliClient + "/" + by, reason})
			return sayDone(cmd.OutOrStdout(), done, err)
		})
	}
	return c
}

func idOf(what, text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, fmt.Errorf("%q is not the id of %s", text, what)
	}
	return id, nil
}

// requestOf is the request of one command.
func requestOf(kind job.Kind, settings config.Settings) job.Request {
	return job.Request{ID: uuidv7.New(), Client: cliClient, Key: uuid.NewString(), Kind: kind, Keep: settings.Retention.Jobs}
}

// sayDone prints what became of a command.
func sayDone(out io.Writer, done job.Accepted, err error) error {
	if err == nil && done.Job.Problem != nil {
		err = done.Job.Problem.Err()
	}
	if err == nil {
		say(out, "%s", done.Job.Result)
	}
	return err
}

// checkText refuses a text that the records cannot have.
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
