// Package idempotency keeps the states IN_PROGRESS, SUCCESS and FAILED of
// requests and jobs in Redis: a cache in front of the jobs table, which decides.
// A hit saves work; after a miss, or without Redis, Postgres is read instead. No
// request is ever refused, and no task ever acknowledged, because of a record here.
//
//	ns:request:<digest of client and key>  <STATE> <request hash> <job> [answer]
//	ns:job:<job>                           <STATE> <who claimed it>
//
// The api ([Requests]) writes a request's record after the commit of its job, never
// before, and adds the final answer when a repeated request first gets it. A worker
// ([Claims]) claims a job before it works on it, extends the claim, and records how
// the job ended.
package idempotency
