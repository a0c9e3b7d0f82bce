// Package ratelimit says how often somebody may ask: GCRA (a leaky bucket that
// remembers one point in time), kept in Redis, which all api processes share.
//
//	Allow ─▶ the user's limit ─▶ the client's limit ─▶ passed
//	              └────────────────────┴─▶ limited
//
//	ns:rate:user:<digest of client and user>  when the user's burst is whole again
//	ns:rate:client:<digest of client>         the same of the client
//
// A user is a user of its client: clients choose the names of their users, and
// nobody must use up what is somebody else's. A limit that is off is not asked
// for, nor is the user's when a request is for no user.
//
// The client is asked after the user has passed: what its user's limit refuses
// costs a client nothing. A request that the client's limit refuses has cost its
// user one, which comes back within 1/user_rate seconds.
//
// Limits keep the crowd even and decide nothing else. When Redis is away, slow or
// has forgotten, requests pass; triprize_rate_limits_total counts them. A key
// lives no longer than it takes for its burst to be whole again.
package ratelimit
