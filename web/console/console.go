// Package console has the files of the console: templates, styles and scripts.
//
// htmx (0BSD) and uPlot (MIT, (c) 2022 Leon Sorokin) are copies from npm: tools/npm/package.json pins them, and
// make generate writes them.
package console

import "embed"

// Files are all of them.
//
//go:embed *.html static
var Files embed.FS
