package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"triprize/internal/books"
	"triprize/internal/books/export"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
)

func exportCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "export KIND",
		Short: "Write the rows of a period, or wallets as of a day, as CSV or JSON lines",
		Long: `Write what accountants read: ` + strings.Join(export.Kinds(), ", ") + `.
The bytes are those of GET /v1/exports/KIND. It reads on the server of postgres.read_url,
if that is set, and holds no transaction between two pages. A file appears under its
name when it is complete.`,
		Args: cobra.ExactArgs(1),
	}
	var p export.Parameters
	flags := c.Flags()
	flags.StringVar(&p.From, "from", "", "first day of the period: 2026-11-01")
	flags.StringVar(&p.To, "to", "", "the day after its last: 2026-12-01; wallets are shown as of its beginning")
	flags.StringVar(&p.Zone, "zone", "", "IANA name of the time zone of days and times, such as Asia/Tokyo; default UTC")
	flags.StringVar(&p.AsOf, "as-of", "", "of wallets, instead of a period: the day at whose beginning they are shown")
	flags.StringVar(&p.Separator, "separator", "", "between the cells of CSV: comma (default) or semicolon")
	format := flags.String("format", "csv", "csv or ndjson")
	output := flags.String("output", "", "file to write; default: the standard output")
	return onDatabase(c, 0, func(cmd *cobra.Command, args []string, db *pgxpool.Pool, settings config.Settings) error {
		if *format != "csv" && *format != "ndjson" {
			return errors.New("--format must be csv or ndjson")
		}
		p.Kind, p.Lines, p.Rules = args[0], *format == "ndjson", books.RulesOf(settings.Books)
		request, err := p.Check()
		if err != nil {
			return err
		}
		if info, err := os.Lstat(*output); err == nil && !info.Mode().IsRegular() { // it would be replaced
			return fmt.Errorf("--output %s is not a regular file; without --output the export goes to standard output", *output)
		}
		reader, err := postgres.NewReader(cmd.Context(), settings.Postgres, db, "triprize-cli")
		if err != nil {
			return err
		}
		defer reader.Close()
		from, err := reader.Now(cmd.Context())
		if err != nil {
			return err
		}
		rows, err := export.Open(cmd.Context(), from, request)
		if err != nil {
			return err
		}
		defer rows.Close()
		if *output == "" {
			return rows.Write(cmd.Context(), cmd.OutOrStdout())
		}
		if file, ok := cmd.ErrOrStderr().(*os.File); ok && term.IsTerminal(int(file.Fd())) {
			rows.Report = progressBar(file, "export")
			defer fmt.Fprint(file, "\r\x1b[K")
		}
		return replaceFile(*output, func(w io.Writer) error { return rows.Write(cmd.Context(), w) })
	})
}

// progressBar returns what draws a bar, in place of the one before.
func progressBar(out io.Writer, what string) func(rows int, share float64) {
	const width = 30
	return func(rows int, share float64) {
		done := int(share * width)
		fmt.Fprintf(out, "\r\x1b[K%s [%s%s] %3.0f %%, %d rows", what, strings.Repeat("#", done), strings.Repeat(".", width-done), share*100, rows)
	}
}

// replaceFile writes a file under another name beside it, and renames it when it is complete and on disk.
func replaceFile(name string, write func(io.Writer) error) error {
	file, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = file.Close(); _ = os.Remove(file.Name()) }() // after the rename there is no such file
	if err := cmp.Or(write(file), file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), name)
}
