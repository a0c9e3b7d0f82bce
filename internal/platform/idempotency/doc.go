// Package idempotency keeps states of requests and jobs in Redis, in front of the jobs
// table.
//
// The jobs table decides. A hit saves work; after a miss, or without Redis, Postgres is
// read. No request is refused, and no task acknowledged, because of a record here.
//
//	ns:request:<digest of client and key>  <STATE> <request hash> <job> [answer]
//	ns:job:<job>                           <STATE> <who claimed it>
//
// The api ([Requests]) writes a request's record after the commit of its job, and adds the
// final answer when it is first asked for. A worker ([Claims]) claims a job before it
// works on it, extends the claim, and records the end of the job.
package idempotency
