// Package tsasim is a real RFC 3161 authority for tests: openssl behind a small HTTP server.
package tsasim
