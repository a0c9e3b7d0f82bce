// Package idempotency keeps answers to repeated requests in Redis, in front of the jobs
// table. The idempotency keys of tasks are in package queue.
//
// The jobs table decides. A hit saves work; after a miss, or without Redis, Postgres is
// read. No request is refused because of a record here.
//
//	ns:request:<digest of client and key>  <MAC, 32 bytes><SUCCESS or FAILED> <request hash> <job> <answer>
//
// The MAC (HMAC-SHA256) is over the name of the key and all that follows it, with a key derived
// from draw.secret_key: a record that no api has written is a miss.
//
// The api ([Requests]) writes the final answer of a request when a repetition of the
// request asks for it: most requests are never repeated.
package idempotency
