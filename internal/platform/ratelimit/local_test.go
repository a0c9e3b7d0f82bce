package ratelimit

import "testing"

// The bucket of a question may have been thrown away while Redis was asked: the new one has
// asked nothing.
func TestAnAnswerForABucketThatIsGoneLeavesNoTrace(t *testing.T) {
	t.Parallel()
	l, p := newLocal(), newPolicy("user", 1, 59)
	l.settle(p, "alice", 0, 0)
	if verdict, owed := l.chargeAhead(p, "alice"); !verdict.Allowed || owed != 0 {
		t.Errorf("%+v, %d owed", verdict, owed)
	}
}

// Two questions are under way: the answer to one must not forget what is owed after the other.
func TestWhatIsOwedAfterAQuestionIsKeptByTheNextAnswer(t *testing.T) {
	t.Parallel()
	l, p := newLocal(), newPolicy("user", 1, 59) // a slack of 4
	for i, want := range []int{0, 0, 0, 0, 5, 1} {
		if _, owed := l.chargeAhead(p, "alice"); owed != want {
			t.Errorf("request %d: %d owed", i+1, owed)
		}
	}
	l.settle(p, "alice", 4, 0)
	l.settle(p, "alice", 0, 0)
	if _, owed := l.chargeAhead(p, "alice"); owed != 5 {
		t.Errorf("%d owed", owed)
	}
}
