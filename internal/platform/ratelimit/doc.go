// Package ratelimit limits how often users and clients may send requests: GCRA (a
// leaky bucket that stores one point in time), in Redis, which all api processes
// share. [Limiter.Allow] checks a request and returns a [Verdict].
//
//	Allow ─▶ the user's limit ─▶ the client's limit ─▶ passed
//	              └────────────────────┴─▶ limited
//
//	ns:rate:user:<digest of client and user>  when the user has its whole burst again
//	ns:rate:client:<digest of client>         the same for the client
//
// The limit of a user is kept per client: two clients may use the same user name,
// and must not use up each other's limit. A limit that is off is not checked, and
// neither is the user's limit for a request without a user.
//
// The user's limit is checked first. If it refuses, the client is not charged. If
// the client's limit refuses, the user has been charged one request, which comes
// back within 1/user_rate seconds.
//
// Limits only share the load fairly; nothing else depends on them. When Redis is
// away, slow or has lost its keys, requests pass. A key expires when its burst is
// whole again.
package ratelimit
