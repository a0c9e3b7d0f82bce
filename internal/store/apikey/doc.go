// Package apikey owns the keys with which apps and operators authenticate:
// tp_<prefix>_<secret>. [Create], [List] and [Revoke] manage them; a [Verifier]
// checks them. The database stores the prefix and the SHA-256 of the secret,
// never the secret: that is shown once, when the key is made. The secret has
// 256 random bits, so a slow password hash would add cost and no protection.
// All keys of a client have one role (table api_clients).
package apikey
