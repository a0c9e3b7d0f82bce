// Package fair divides the capacity of a process among its clients, so that none takes all of it.
//
// A [Semaphore] limits active requests and admits waiting ones round robin:
//
//	client a: user 1 ▮▮▮▮▮▮▮▮  ┐
//	          user 2 ▮         ├─▶ a.1, b.3, a.2, b.3, a.1, …  at most Total active
//	client b: user 3 ▮▮        ┘
//
// Clients alternate, then the users of a client; requests of one user are served in the order
// of arrival. A client that is alone has all slots. A client whose window is full waits without
// blocking others.
//
// A [Pool] is for slots and bytes that are held for long and cannot be revoked. No owner can take all
// of it in several requests.
package fair
