// Package api is the public HTTP contract: openapi.yaml, which is the truth.
//
// The server's types and routes and the Go client are generated from it (make
// generate), and the server checks every request against it, so that bounds and
// formats are written once, where clients read them.
package api

import _ "embed"

// OpenAPI is the document, as YAML (OpenAPI 3.1).
//
//go:embed openapi.yaml
var OpenAPI []byte
