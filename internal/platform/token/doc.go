// Package token verifies the JSON Web Tokens of users and viewers ([Verifier]).
//
// A token is signed with HS256 and the shared secret, or with RS256, PS256, ES256 or EdDSA
// and a key of the issuer; a setting decides which, never the token. The key's type, curve
// and declared alg, use and key_ops must fit. Issuer and audience must equal the settings.
// exp is required; exp, nbf and iat are checked with the leeway; sub has 1 to 128
// characters; the role is user or viewer. Keys in a token, or behind its links, are
// ignored.
//
// The issuer's keys are fetched in the background: at start, at intervals, and for an unknown kid at most
// once in a few seconds. After a failed fetch the last keys stay valid. Before the first successful fetch
// Verify returns unavailable.
//
// All rejections have the same text, except for an expired token. No error and no log line has any part of
// a token.
package token
