// Package fair divides what a process has among its clients, so that a greedy one leaves some to
// the next.
//
// A [Semaphore] lets a bounded number of requests in, and makes those that wait take turns:
//
//	client a: user 1 ▮▮▮▮▮▮▮▮  ┐
//	          user 2 ▮         ├─▶ a.1, b.3, a.2, b.3, a.1, …  at most Total at once
//	client b: user 3 ▮▮        ┘
//
// Clients take turns; within a client its users do; within a user the order
// is that of arrival. A client that is alone has everything. A client whose window is full
// waits, and others go on.
//
// A [Room] is for what is kept for long, and cannot be taken back: slots, and bytes. It is
// never all one owner's.
package fair
