// Package console has the files of the console: templates, styles and scripts.
//
// static/htmx.js and static/uPlot.js are from npm (tools/npm/package.json); tools/npm.sh writes them.
package console

import "embed"

// Files are all of them.
//
//go:embed *.html static
var Files embed.FS
