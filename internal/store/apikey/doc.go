// Package apikey owns the keys with which apps and operators authenticate:
// tp_<prefix>_<secret>. The database has the prefix and the SHA-256 of the
// secret; the secret itself is shown once, when the key is made. The secret is
// 256 random bits, so a slow hash would protect nothing and cost every request.
package apikey
