// Package timestamp asks RFC 3161 authorities to sign that a digest existed at a time, and
// checks such tokens.
//
//	Client.Stamp ──query──▶ authority ──token──▶ Check ──▶ Token
//
// [Check] needs no network and no settings: a token carries every certificate up to the
// root, and the root is known by its SHA-256. Authorities usually leave their root out, so
// [Client.Stamp] adds it. It may: the certificates of a token are not signed with it.
//
// What is checked: the token is DER; it has one signer, whose signature covers the
// attributes, which name the content's digest, its type, and the signer's certificate
// (RFC 5035, and RFC 5816); that certificate is for timestamps only (RFC 3161, 2.3) and
// its chain leads to a pinned root, all valid at the token's time; the content is about
// this digest in SHA-256. Not checked: whether a certificate was revoked. That would need
// the network, today and for as long as a proof is worth something.
//
// Signatures are RSA (PKCS #1 v1.5) or ECDSA, with SHA-256, SHA-384 or SHA-512. No others.
package timestamp
