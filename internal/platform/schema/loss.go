package schema

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Loss is what reverting a migration would delete.
type Loss struct {
	What string // a table, or table.column
	Rows int64  // deleted rows, or rows whose value is deleted
}

// String returns such as "wallets: 3 rows" and "purchases.cancelled_at: 1 value".
func (l Loss) String() string {
	unit := "row"
	if strings.Contains(l.What, ".") {
		unit = "value"
	}
	if l.Rows != 1 {
		unit += "s"
	}
	return fmt.Sprintf("%s: %d %s", l.What, l.Rows, unit)
}

// Losses returns the name of the newest applied migration and what reverting it now would delete; an empty name if
// none is applied. It reads whole tables.
func (m *Migrator) Losses(ctx context.Context) (name string, losses []Loss, err error) {
	version, err := m.provider.GetDBVersion(ctx)
	if err != nil || version == 0 {
		return "", nil, err
	}
	for _, source := range m.provider.ListSources() {
		if source.Version == version {
			name = path.Base(source.Path)
		}
	}
	if name == "" {
		return "", nil, fmt.Errorf("schema.Losses: the database has version %d, which this program does not know: use the program that applied it", version)
	}
	text, err := fs.ReadFile(m.files, name)
	if err != nil {
		return name, nil, fmt.Errorf("schema.Losses: %w", err)
	}
	for _, what := range lostBy(string(text)) {
		table, column, found := strings.Cut(what, ".")
		if !found {
			column = "*"
		}
		// The names come from an embedded file.
		l := Loss{What: what}
		if err := m.db.QueryRowContext(ctx, "SELECT count("+column+") FROM "+table).Scan(&l.Rows); err != nil {
			return name, nil, fmt.Errorf("schema.Losses: %s: %w", what, err)
		}
		if l.Rows > 0 {
			losses = append(losses, l)
		}
	}
	return name, losses, nil
}

// loses is the prefix of the line that names the tables and columns whose content a Down section deletes:
// "-- loses: purchases.cancelled_at, holds".
const loses = "-- loses: "

func lostBy(file string) (all []string) {
	for line := range strings.Lines(file) {
		if list, found := strings.CutPrefix(strings.TrimSpace(line), loses); found {
			all = append(all, strings.Split(list, ", ")...)
		}
	}
	return all
}
