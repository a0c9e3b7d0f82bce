// Package migrations embeds the schema as goose SQL files. A file that has been
// released is never edited; a change is a new file.
package migrations

import "embed"

// Files holds every NNNNN_name.sql of this folder.
//
//go:embed *.sql
var Files embed.FS
