// Package call identifies the sender of a request to its handler, and holds what the guard has read.
package call
