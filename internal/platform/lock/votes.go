package lock

import "github.com/go-redsync/redsync/v4"

// votes is what the servers said that did not say yes.
type votes struct {
	no     int // somebody else has it there, or nobody does
	silent int // did not answer, or with an error
}

// countVotes counts the votes in an error of redsync: an ErrTaken when a majority
// said no, otherwise a tree of one error for each server that did not say yes.
func countVotes(err error) (v votes) {
	switch err := err.(type) { //nolint:errorlint // it counts each error of the tree; errors.As would find the first
	case *redsync.ErrTaken:
		v.no = len(err.Nodes)
	case *redsync.ErrNodeTaken:
		v.no = 1
	case *redsync.RedisError:
		v.silent = 1
	case interface{ Unwrap() []error }:
		for _, one := range err.Unwrap() {
			w := countVotes(one)
			v.no += w.no
			v.silent += w.silent
		}
	}
	return v
}

// taken tells, of a failed attempt to take a lock, whether somebody else has it:
// a majority answered, and not all of it with yes. Without a majority nobody can
// say; and when all that answered said yes, it was too late.
func (v votes) taken(servers, quorum int) bool { return v.no > 0 && servers-v.silent >= quorum }

// gone tells, of a failed attempt to extend a lock, whether no majority can have
// it any more, whatever the silent ones would say.
func (v votes) gone(servers, quorum int) bool { return servers-v.no < quorum }
