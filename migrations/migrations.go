// Package migrations embeds the schema as goose SQL files. A file that has been
// released is never edited; a change is a new file.
package migrations

import "embed"

// Files has the SQL files of this folder. The number at the front of a name is its version.
//
//go:embed *.sql
var Files embed.FS
