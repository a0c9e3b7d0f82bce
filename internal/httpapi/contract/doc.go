// Package contract is the HTTP contract: openapi.yaml, which is the truth, the
// types and the server that are generated from it, and the check of requests
// against it.
//
// Change openapi.yaml, then run go generate (make generate). Handlers implement
// StrictServerInterface; nothing of a request reaches them before it has been
// checked, so that bounds and formats are written once, where clients read them.
package contract

//go:generate go tool -modfile=../../../tools/go.mod oapi-codegen -config server.yaml openapi.yaml
