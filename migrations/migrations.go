// Package migrations embeds the schema as goose SQL files, one for each topic. Until
// version 1.0.0 is declared they are edited in place; after that a change is a new file. A
// database that another commit has migrated is not recognized: it is to be created anew. A file
// names at its top the tables and columns whose content its Down section deletes, in lines such as
// "-- loses: purchases.cancelled_at, holds": triprize migrate down counts them.
package migrations

import "embed"

// Files has the SQL files of this folder. The number at the front of a name is its version.
//
//go:embed *.sql
var Files embed.FS
