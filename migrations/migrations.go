// Package migrations embeds the schema as goose SQL files. A file that has been
// released never does something else later; a change is a new file. In a Down section a
// statement that changes rows and loses nothing has the note "-- keeps: why" above it:
// triprize migrate down counts what every other statement would lose.
package migrations

import "embed"

// Files has the SQL files of this folder. The number at the front of a name is its version.
//
//go:embed *.sql
var Files embed.FS
