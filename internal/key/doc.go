// Package apikey owns the keys of apps and operators: tp_<prefix>_<secret>.
//
// [Create], [List] and [Revoke] manage them; a [Verifier] checks them. The database has
// the prefix and the SHA-256 of the secret. The secret is shown once. It has 256 random
// bits, so a slow password hash would add no protection. All keys of a client have one
// role (table api_clients).
package key
