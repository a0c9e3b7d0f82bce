// Package openapi checks requests against an OpenAPI 3.1 document.
//
// It checks parameters in path, query and headers, and JSON bodies. Every fault has its
// place (a JSON pointer, or the name of a parameter) and a sentence about what is allowed.
// It knows no web framework.
//
//	[Load] ─▶ [Document] ─▶ [Operation.CheckParameters], [Operation.ReadBody]
//
// A body is read once, so that the cost is bounded by its length: bounds (depth, counts, names,
// lengths, numbers) before what they bound, until there are 20 faults. A schema that says what is
// not checked here is refused by Load.
//
// The document also has the roles of an operation (x-roles), the length of its body
// (x-max-body-bytes), and whether it needs an Idempotency-Key.
package openapi
