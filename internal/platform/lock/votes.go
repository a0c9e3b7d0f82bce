package lock

import "github.com/go-redsync/redsync/v4"

// votes counts the servers that did not say yes.
type votes struct {
	no     int // the lock has another holder there, or none
	silent int // no answer, or an error
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

// taken tells, for a failed attempt to take a lock, whether another holder has it:
// a majority answered, and at least one server said no. Without a majority the
// holder is unknown; and when all answers were yes, they came too late.
func (v votes) taken(servers, quorum int) bool { return v.no > 0 && servers-v.silent >= quorum }

// gone tells, for a failed attempt to extend a lock, whether no majority can have
// it any more, even if all silent servers agreed.
func (v votes) gone(servers, quorum int) bool { return servers-v.no < quorum }
