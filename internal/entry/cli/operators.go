package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize.example/client"
	"triprize/internal/domain/money"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
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
		text := fmt.Sprint(value)
		switch value := value.(type) {
		case *string:
			list[i] = cell(value)
			continue
		case time.Time:
			if text = ""; !value.IsZero() {
				text = value.Format(time.DateTime)
			}
		case uuid.UUID:
			if value == uuid.Nil {
				text = ""
			}
		}
		list[i] = cell(&text)
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

// amountOf is an amount as people write it, empty without a currency.
func amountOf(amount client.Money, currency client.Currency) string {
	if currency == "" {
		return ""
	}
	return money.Currency(currency).Format(money.Amount(amount))
}
