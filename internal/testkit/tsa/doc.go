// Package tsa is a real RFC 3161 authority for tests: openssl makes its keys and
// certificates and signs its tokens, behind a small HTTP server. What a real authority
// would refuse to sign, tests must make themselves.
package tsa
