// Package timestamp asks RFC 3161 authorities for tokens over a digest, and checks tokens.
//
//	Client.Stamp ──query──▶ authority ──token──▶ Check ──▶ Token
//
// [Check] needs no network and no settings: a token carries every certificate, and the
// root is known by its SHA-256. Authorities often leave certificates out, so
// [Client.Stamp] adds them; they are not signed with the token.
//
// Checked: DER; one signer, whose signature covers attributes that name the content's
// digest, its type, and the signer's certificate (RFC 5035, RFC 5816); a certificate for
// timestamps only (RFC 3161, 2.3), with a chain to a pinned root, valid at the token's
// time; a content about this digest in SHA-256. Not checked: revocation, which would need
// the network for ever.
//
// Signatures are RSA (PKCS #1 v1.5) or ECDSA, with SHA-256, SHA-384 or SHA-512.
package timestamp
