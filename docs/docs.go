// Package docs has the pages of the documentation, which each api serves at /docs.
package docs

import "embed"

// Files are the pages.
//
//go:embed *.md adr/*.md runbooks/*.md
var Files embed.FS
