// Package ratelimit limits the requests of users, clients and addresses (GCRA, in Redis).
//
// [Limiter.Client] and [Limiter.User] charge one request each and return a [Verdict]. All
// api processes share the limits. A process lets up to a twentieth of a burst, its slack, pass
// by its own count; then it tells Redis about all of it at once. So one process lets no
// request too many pass, and each of several at most its slack. What is owed when a burst is
// whole again is still charged: then up to the slack too few pass. A burst under 20 has no slack.
//
//	ns:rate:user:<digest of client and user>  when the user has its whole burst again
//	ns:rate:client:<digest of client>         the same for the client
//
// Requests without a credential are charged to their address ([Limiter.Address]), by each
// process alone. The limit of a user is kept per client, because two clients may use the
// same user name.
//
// Limits only share the load. Without Redis each process counts alone. After Redis has
// lost its keys, everybody has a whole burst.
package ratelimit
