// Package configs embeds triprize.yaml, which documents every setting and holds its default.
package configs

import _ "embed"

// Defaults is the content of triprize.yaml.
//
//go:embed triprize.yaml
var Defaults []byte
