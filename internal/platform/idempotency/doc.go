// Package idempotency caches answers to repeated requests in Redis, in front of the jobs table. The
// idempotency keys of tasks are in package queue.
//
// The jobs table decides. A hit saves work; after a miss, or without Redis, Postgres is read. No request is
// rejected because of a record here.
//
//	ns:request:<digest of client and key>  <MAC, 32 bytes><SUCCESS or FAILED> <request hash> <job> <answer>
//
// The MAC (HMAC-SHA256) covers the name of the key and the rest of the value. Its key is derived from
// draw.secret_key: a record that no api has written is a miss.
//
// The api ([Requests]) writes the final answer of a request on its first repetition, because most requests
// are never repeated.
package idempotency
