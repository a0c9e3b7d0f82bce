// Package ratelimit limits the requests of users, clients and addresses (GCRA, in Redis).
//
// [Limiter.Client] and [Limiter.User] charge one request each and return a [Verdict]. All api processes
// share the limits. A process allows up to a twentieth of a burst, its slack, by its own count, and then
// charges it in Redis at once. So a single process never exceeds the limit, and each of several exceeds it
// by at most its slack. Requests that are still uncharged when the burst has recovered are charged later:
// then up to the slack too few are allowed. A burst under 20 has no slack.
//
//	ns:rate:user:<digest of client and user>  when the user has its whole burst again
//	ns:rate:client:<digest of client>         the same for the client
//
// Requests without a credential are charged to their address ([Limiter.Address]), in each process
// separately. The limit of a user is per client, because two clients may use the same user name.
//
// Without Redis each process counts separately. After Redis has lost its keys, all have a whole burst.
package ratelimit
