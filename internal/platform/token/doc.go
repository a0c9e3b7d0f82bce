// Package token verifies the JSON Web Tokens (RFC 7519) of users and viewers
// ([Verifier]). It never creates one.
//
// A token must be signed with HS256 and the shared secret, or with RS256, PS256,
// ES256 or EdDSA and a key that the issuer publishes; a setting decides which of
// the two, never the token. The key's type, curve and declared alg, use and key_ops
// must fit. Issuer and audience must equal the settings. exp is required; exp, nbf
// and iat are checked with the leeway; sub has 1 to 128 characters; the role is
// user or viewer. Keys in a token or behind its links (jwk, jku, x5c, x5u) are
// ignored.
//
// The issuer's keys are fetched in the background: at start, then at intervals, and
// at once for an unknown kid, but at most once in a few seconds. After a failed
// fetch the keys of the last good one stay valid, however long the issuer's server
// is away. Before the first good fetch tokens cannot be checked, and Verify returns
// unavailable.
//
// All refusals read the same, so that an attacker does not learn which part was
// wrong. The one exception is a token that is valid apart from its age: its holder
// is told that it has expired. No error and no log contains any part of a token.
package token
