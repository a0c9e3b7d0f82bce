// Package contract is generated: the types and the Fiber server of the HTTP
// contract (api/openapi.yaml). Handlers implement StrictServerInterface.
// Change api/openapi.yaml, then run make generate.
package contract

//go:generate go tool -modfile=../../../../tools/go.mod oapi-codegen -config oapi-codegen.yaml ../../../../api/openapi.yaml
