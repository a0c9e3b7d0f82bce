// Package idempotency keeps the states IN_PROGRESS, SUCCESS and FAILED of
// requests and jobs in Redis, in front of the jobs table, which is the truth.
// A hit spares work; a miss, a doubt or a Redis that is away costs a look into
// Postgres and nothing else. Nothing is ever decided against a caller, and no
// task is ever acknowledged, because of a record here.
//
//	ns:request:<digest of client and key>  <STATE> <request hash> <job> [answer]
//	ns:job:<job>                           <STATE> <who claimed it>
//
// The api writes a request's record after the commit that made its job, never
// before, and completes it with the final answer when that is first asked for
// again. A worker claims a job before it works on it, keeps the claim fresh,
// and records how it ended.
package idempotency
