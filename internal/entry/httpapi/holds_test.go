package httpapi_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestManyAtOnceForOnePositionOneHolds(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	at := fixture.At(3, 2)
	for _, n := range []int{20, 50} {
		id := s.Campaign(4)
		winner := fleet.WantOneWinner(t, fleet.AtOnce(n, func(i int) fleet.Held {
			return s.Hold(fleet.HoldOrder{Campaign: id, User: fmt.Sprint("user-", i), At: []shape.Position{at}, API: i})
		}), at)
		if len(winner.Positions) != 1 || winner.Positions[0] != at || winner.Header.Get("Location") != "/v1/holds/"+winner.ID.String() {
			t.Errorf("the winner has %v", winner)
		}
		s.WantHeldOnce(id)
		fleet.WantOneWinner(t, append(fleet.AtOnce(n, func(i int) fleet.Held { // also those who come later
			return s.Hold(fleet.HoldOrder{Campaign: id, User: fmt.Sprint("late-", i), At: []shape.Position{at}, API: i})
		}), winner), at)
		s.WantHeldOnce(id)
	}
}

func TestManyAtOnceBuyOnePositionOneGetsIt(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	at := fixture.At(3, 2)
	for _, n := range []int{20, 50} {
		id := s.Campaign(4)
		bought := 0
		for i, a := range fleet.AtOnce(n, func(i int) fleet.Answer { return s.BuyChosen(i, id, fmt.Sprint("user-", i), uuid.Nil, at) }) {
			switch {
			case a.State == job.Succeeded && len(a.Result.Positions) == 1 && a.Result.Positions[0] == at:
				bought++
			case !a.TakenAt(at):
				t.Errorf("request %d: %v %s", i, a, a.Body)
			}
		}
		if sold := s.CampaignNow(id).Counts.Sold; bought != 1 || sold != 1 {
			t.Errorf("%d of %d bought it; %d are sold", bought, n, sold)
		}
	}
}

func TestAHoldLastsTwoMinutesUnlessItsRequestSaysOtherwise(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(4)
	for ttl, want := range map[int]int{0: 120, 45: 45} {
		h := s.MustHold(fleet.HoldOrder{Campaign: id, User: fmt.Sprint("user-", ttl), At: []shape.Position{fixture.At(3, 1+ttl%2)}, TTL: ttl})
		if got := servers.Value[int](t, s.DB, `SELECT extract(epoch FROM expires_at - created_at)::int FROM holds WHERE id = $1`, h.ID); got != want {
			t.Errorf("a hold for %d seconds lasts %d", ttl, got)
		}
	}
}
