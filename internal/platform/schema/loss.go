package schema

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Losses returns the name of the newest applied migration and what reverting it now would delete, such as "wallets: 3
// rows" and "purchases.cancelled_at: 1 value"; an empty name if none is applied. It reads whole tables.
func (m *Migrator) Losses(ctx context.Context) (name string, losses []string, err error) {
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
		unit := "value"
		if !found {
			column, unit = "*", "row"
		}
		var n int64
		if err := m.db.QueryRowContext(ctx, "SELECT count("+column+") FROM "+table).Scan(&n); err != nil { // names of an embedded file
			return name, nil, fmt.Errorf("schema.Losses: %s: %w", what, err)
		}
		if n != 1 {
			unit += "s"
		}
		if n > 0 {
			losses = append(losses, fmt.Sprintf("%s: %d %s", what, n, unit))
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
