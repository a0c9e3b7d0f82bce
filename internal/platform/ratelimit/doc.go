// Package ratelimit limits how often users and clients may send requests: GCRA (a
// leaky bucket that stores one point in time), in Redis, which all api processes
// share. [Limiter.Client] and [Limiter.User] charge one request each and return a
// [Verdict]: the client is charged before its request is read, the user when it is
// known.
//
//	ns:rate:user:<digest of client and user>  when the user has its whole burst again
//	ns:rate:client:<digest of client>         the same for the client
//
// Requests without a credential are charged to their address ([Limiter.Address]), by each
// process alone.
//
// The limit of a user is kept per client: two clients may use the same user name,
// and must not use up each other's limit. A limit that is off is not checked.
//
// Limits only share the load fairly; nothing else depends on them. When Redis is
// away or slow, each process counts alone: the limits are then those of each process.
// When Redis has lost its keys, everybody has a whole burst. A key expires when its
// burst is whole again.
package ratelimit
