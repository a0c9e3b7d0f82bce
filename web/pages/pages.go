// Package pages has the files of the pages that anybody may read: templates, style, scripts, and the messages of the
// live page in each language. The style is that of all pages: the console has it too, and draw/web builds it in.
package pages

import "embed"

// Files are all of them.
//
//go:embed *.html messages static
var Files embed.FS
