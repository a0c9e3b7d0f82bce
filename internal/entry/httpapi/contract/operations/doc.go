// Package operations is generated: the Fiber server of the HTTP contract
// (api/openapi.yaml). Handlers implement StrictServerInterface. It has no types for
// problems: one function writes them for all operations.
// Change api/openapi.yaml, then run make generate.
package operations

//go:generate go tool -modfile=../../../../../tools/go.mod oapi-codegen -config oapi-codegen.yaml ../../../../../api/openapi.yaml
