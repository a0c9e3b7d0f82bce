package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/job"
)

// place is a position as requests and answers name it.
type place struct {
	Layer  int `json:"layer"`
	Column int `json:"column"`
}

// ask is one request for a hold.
type ask struct {
	campaign   uuid.UUID
	user       string
	credential string // empty: the app's key
	key        string // empty: a fresh one
	at         []place
	quantity   int // instead of at
	ttl        int // seconds; 0: as long as the server thinks
	api        int
}

// held is the answer to a request about a hold.
type held struct {
	answer
	ID         uuid.UUID
	State      string
	Positions  []place
	ExpiresAt  time.Time `json:"expires_at"`
	Extensions int
	PurchaseID *uuid.UUID `json:"purchase_id"`
	EndedAt    *time.Time `json:"ended_at"`
}

func (h held) String() string {
	return fmt.Sprintf("hold %s %s: %v %s", h.ID, h.State, h.answer, h.body)
}

func heldOf(a answer) held {
	h := held{answer: a}
	_ = json.Unmarshal(a.body, &h) // what does not fit stays empty
	return h
}

func (s *system) hold(a ask) held {
	if a.key == "" {
		a.key = uuid.NewString()
	}
	if a.credential == "" {
		a.credential = s.app
	}
	body := map[string]any{"user_id": a.user}
	if len(a.at) > 0 {
		body["positions"] = a.at
	}
	if a.quantity > 0 {
		body["quantity"] = a.quantity
	}
	if a.ttl > 0 {
		body["ttl_seconds"] = a.ttl
	}
	return heldOf(s.do(a.api, a.credential, http.MethodPost, "/v1/campaigns/"+a.campaign.String()+"/holds", map[string]string{"Idempotency-Key": a.key}, body))
}

// mustHold makes a hold that nothing stands in the way of.
func (s *system) mustHold(a ask) held {
	s.t.Helper()
	h := s.hold(a)
	if h.status != http.StatusCreated || h.State != "active" {
		s.t.Fatal(h)
	}
	return h
}

func (s *system) holdNow(credential string, id uuid.UUID) held {
	return heldOf(s.do(0, credential, http.MethodGet, "/v1/holds/"+id.String(), nil, nil))
}

func (s *system) release(credential string, id uuid.UUID) answer {
	return s.do(0, credential, http.MethodDelete, "/v1/holds/"+id.String(), nil, nil)
}

func (s *system) extend(credential string, id uuid.UUID) held {
	return heldOf(s.do(0, credential, http.MethodPost, "/v1/holds/"+id.String()+"/extend", map[string]string{"Idempotency-Key": uuid.NewString()}, nil))
}

// buyChosen buys positions, or with holdID what a hold keeps, and waits.
func (s *system) buyChosen(api int, campaign uuid.UUID, user string, holdID uuid.UUID, at ...place) answer {
	selection := map[string]any{"positions": at}
	if holdID != uuid.Nil {
		selection = map[string]any{"hold_id": holdID}
	}
	return s.do(api, s.app, http.MethodPost, "/v1/campaigns/"+campaign.String()+"/purchases",
		map[string]string{"Idempotency-Key": uuid.NewString(), "Prefer": "wait=20"},
		map[string]any{"user_id": user, "selection": selection, "payment": map[string]string{"method": "external"}})
}

// atOnce calls do n times at the same moment.
func atOnce[T any](n int, do func(i int) T) []T {
	answers := make([]T, n)
	gun := make(chan struct{})
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			<-gun
			answers[i] = do(i)
		})
	}
	close(gun)
	all.Wait()
	return answers
}

// takenAt tells whether an answer, or the job in it, is a position-taken that
// names a position and no other.
func (a answer) takenAt(at place) bool {
	var p struct {
		Problem json.RawMessage
		Errors  []struct{ Detail string }
	}
	if err := json.Unmarshal(a.body, &p); err != nil {
		return false
	}
	if len(p.Problem) > 0 {
		_ = json.Unmarshal(p.Problem, &p)
	}
	return a.code() == "position-taken" && len(p.Errors) == 1 && strings.Contains(p.Errors[0].Detail, fmt.Sprintf("%d/%d", at.Layer, at.Column))
}

// wantOneWinner wants one of the answers to be a hold, and all others to be told
// that the position is taken. It returns the winner's.
func wantOneWinner(t *testing.T, answers []held, at place) (winner held) {
	t.Helper()
	winners := 0
	for i, h := range answers {
		switch {
		case h.status == http.StatusCreated && h.State == "active":
			winner = h
			winners++
		case h.status != http.StatusConflict || !h.takenAt(at):
			t.Errorf("request %d: %v", i, h)
		}
	}
	if winners != 1 {
		t.Errorf("%d of %d have the position", winners, len(answers))
	}
	return winner
}

// wantHeldOnce wants one active hold in a campaign, of one position, and the
// database to be sound.
func (s *system) wantHeldOnce(campaign uuid.UUID) {
	s.t.Helper()
	var holds, positions int
	err := s.db.QueryRow(s.t.Context(), `
		SELECT (SELECT count(*) FROM holds WHERE campaign_id = $1 AND state = 'active'),
		       (SELECT count(*) FROM positions WHERE campaign_id = $1 AND state = 'held')`, campaign).Scan(&holds, &positions)
	if c := s.campaignNow(campaign).Counts; err != nil || holds != 1 || positions != 1 || c.Reserved != 1 || c.Sold != 0 {
		s.t.Errorf("%d holds, %d positions held, counts %+v, %v", holds, positions, c, err)
	}
}

func TestManyAtOnceForOnePositionOneHolds(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: -1, schedulers: -1})
	at := place{3, 2}
	for _, n := range []int{20, 50} {
		id := s.campaign(4)
		winner := wantOneWinner(t, atOnce(n, func(i int) held {
			return s.hold(ask{campaign: id, user: fmt.Sprint("user-", i), at: []place{at}, api: i})
		}), at)
		if len(winner.Positions) != 1 || winner.Positions[0] != at || winner.header.Get("Location") != "/v1/holds/"+winner.ID.String() {
			t.Errorf("the winner has %v", winner)
		}
		s.wantHeldOnce(id)
		wantOneWinner(t, append(atOnce(n, func(i int) held { // also those who come later
			return s.hold(ask{campaign: id, user: fmt.Sprint("late-", i), at: []place{at}, api: i})
		}), winner), at)
		s.wantHeldOnce(id)
	}
}

func TestManyAtOnceBuyOnePositionOneGetsIt(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: 2})
	at := place{3, 2}
	for _, n := range []int{20, 50} {
		id := s.campaign(4)
		bought := 0
		for i, a := range atOnce(n, func(i int) answer { return s.buyChosen(i, id, fmt.Sprint("user-", i), uuid.Nil, at) }) {
			switch {
			case a.State == job.Succeeded && len(a.Result.Positions) == 1 && a.Result.Positions[0] == at:
				bought++
			case !a.takenAt(at):
				t.Errorf("request %d: %v %s", i, a, a.body)
			}
		}
		if sold := s.campaignNow(id).Counts.Sold; bought != 1 || sold != 1 {
			t.Errorf("%d of %d bought it; %d are sold", bought, n, sold)
		}
	}
}
