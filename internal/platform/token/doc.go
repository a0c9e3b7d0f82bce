// Package token verifies the JSON Web Tokens (RFC 7519) with which users and
// viewers say who they are. It makes none.
//
// A token is believed when it is signed with HS256 and the shared secret, or
// with RS256, PS256, ES256 or EdDSA and a key that the issuer publishes; which
// of the two is a setting, never the token's choice. The key's type, curve and
// declared alg, use and key_ops must fit. Issuer and audience are exactly the
// settings', exp is there, nbf and iat are checked where they are, all with the
// leeway; sub is 1 to 128 characters; the role is user or viewer. Whatever keys
// a token carries or points at (jwk, jku, x5c, x5u) are not looked at.
//
// The issuer's keys are fetched in the background, at start, then at intervals,
// and out of turn for a kid that is not known, at most once in a few seconds. A
// failed fetch changes nothing: the keys of the last good one stay in force
// however long the issuer's server is away. Until the first good one, tokens are
// answered with unavailable, since nobody can tell whether they are good.
//
// Refusals are alike, so that nobody learns which part was wrong; only the
// holder of a token that is good but for its age is told that it has expired. No
// error and no log has any part of a token.
package token
