// Package openapi checks requests against an OpenAPI 3.1 document: parameters in
// path, query and headers, and JSON bodies. Every fault comes with the place
// (a JSON pointer, RFC 6901, or the name of a parameter) and a sentence that says
// what is allowed there. It never changes a request and knows no web framework.
//
//	[Load] ─▶ [Document] ─▶ [Operation.CheckParameters], [Operation.CheckBody]
//
// The document also says what a server must check before its handlers run: who may
// call an operation (x-roles) and whether it needs an Idempotency-Key.
package openapi
