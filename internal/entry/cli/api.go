package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize.example/client"
	"triprize/internal/domain/buildinfo"
	"triprize/internal/domain/money"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
)

// maxList is the longest list.
const maxList = 10_000

// onAPI makes c a command that calls the api that the environment names. Commands that must work without
// the api (migrate, key, audit, find, doctor) use the database instead.
func onAPI(c *cobra.Command, run func(cmd *cobra.Command, args []string, api *client.Client) error, options ...client.Option) *cobra.Command {
	c.RunE = func(cmd *cobra.Command, args []string) error {
		base, key := os.Getenv(config.APIVariable), os.Getenv(config.KeyVariable)
		if base == "" || key == "" {
			return fmt.Errorf("%s and %s are required: the address of the api, such as http://127.0.0.1:8080, and an operator's key", config.APIVariable, config.KeyVariable)
		}
		options = append([]client.Option{client.WithUserAgent("triprize/" + buildinfo.Version()), client.WithOperator(operatorName())}, options...)
		api, err := client.New(base, key, options...)
		if err != nil {
			return err
		}
		return run(cmd, args, api)
	}
	return c
}

// operatorName is who uses the tool: TRIPRIZE_OPERATOR, or the user of the system. It proves nothing.
func operatorName() string {
	name := os.Getenv(config.OperatorVariable)
	if who, err := user.Current(); name == "" && err == nil {
		name = who.Username
	}
	letters := []rune(strings.ToValidUTF8(name, ""))
	return string(letters[:min(len(letters), 100)]) // as long as the trail has names
}

// required adds a flag that must be set.
func required(c *cobra.Command, name, help string) *string {
	value := c.Flags().String(name, "", help)
	_ = c.MarkFlagRequired(name)
	return value
}

func checkLimit(limit int) error {
	if limit < 1 || limit > maxList {
		return fmt.Errorf("--limit must be 1 to %d", maxList)
	}
	return nil
}

func idOf(what, text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, fmt.Errorf("%q is not the id of %s", text, what)
	}
	return id, nil
}

// onDatabase makes c a command that works on the database of the settings. A timeout replaces those of a
// statement and of an idle transaction; 0: those of the settings.
func onDatabase(c *cobra.Command, timeout time.Duration, run func(cmd *cobra.Command, args []string, db *pgxpool.Pool, settings config.Settings) error) *cobra.Command {
	file := c.Flags().String("config", "", "settings file (default: $TRIPRIZE_CONFIG, or none)")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		settings, err := config.Load(*file)
		if err != nil {
			return err
		}
		if timeout > 0 {
			settings.Postgres.StatementTimeout, settings.Postgres.IdleInTransactionTimeout = timeout, timeout
		}
		pool, err := postgres.Open(cmd.Context(), settings.Postgres, "triprize-cli")
		if err != nil {
			return err
		}
		defer pool.Close()
		return run(cmd, args, pool, settings)
	}
	return c
}

// acting returns the context of a change of a target in the database, which the audit trail records.
func acting(cmd *cobra.Command, db *pgxpool.Pool, target string) context.Context {
	_, command, _ := strings.Cut(cmd.CommandPath(), " ")
	return trail.With(cmd.Context(), &trail.Actor{Operator: operatorName(), Client: db.Config().ConnConfig.User, Via: "cli", Operation: command, Target: target})
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
		list[i] = cell(value)
	}
	return strings.Join(list, "\t")
}

// cell formats a value for a table: one line, - if it is empty.
func cell(value any) string {
	text := fmt.Sprint(value)
	if at, ok := value.(time.Time); ok {
		if text = ""; !at.IsZero() {
			text = at.Format(time.DateTime)
		}
	}
	return cmp.Or(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text), "-")
}

// amountOf formats an amount; it is empty without a currency.
func amountOf(amount client.Money, currency client.Currency) string {
	if currency == "" {
		return ""
	}
	return money.Currency(currency).Format(money.Amount(amount))
}
