// Package openapi checks requests against an OpenAPI 3.1 document: parameters in
// path, query and headers, and JSON bodies. Every fault comes with the place
// (a JSON pointer, RFC 6901, or the name of a parameter) and a sentence that says
// what is allowed there. It knows no web framework.
//
//	[Load] ─▶ [Document] ─▶ [Operation.CheckParameters], [Operation.ReadBody]
//
// A body is checked in two steps, so that none costs more than its length: first its
// bounds (depth, counts, names, lengths, numbers), without making anything of it, then
// its values, part by part, until there are 20 faults.
//
// The document also says what a server must check before its handlers run: who may
// call an operation (x-roles), how long its body may be (x-max-body-bytes), and
// whether it needs an Idempotency-Key.
package openapi
