package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"triprize/internal/domain/shape"

	"github.com/google/uuid"
)

// HoldOrder is one request for a hold.
type HoldOrder struct {
	Campaign   uuid.UUID
	User       string
	Credential string // empty: the app's key
	Key        string // empty: a fresh one
	At         []shape.Position
	Quantity   int // instead of at
	TTL        int // seconds; 0: as long as the server thinks
	API        int
}

// Held is the answer to a request about a hold.
type Held struct {
	Answer
	ID         uuid.UUID
	State      string
	Positions  []shape.Position
	ExpiresAt  time.Time `json:"expires_at"`
	Extensions int
	PurchaseID *uuid.UUID `json:"purchase_id"`
	EndedAt    *time.Time `json:"ended_at"`
}

func (h Held) String() string {
	return fmt.Sprintf("hold %s %s: %v %s", h.ID, h.State, h.Answer, h.Body)
}

func heldOf(a Answer) Held {
	h := Held{Answer: a}
	_ = json.Unmarshal(a.Body, &h) // what does not fit stays empty
	return h
}

// Hold sends a request for a hold.
func (s *System) Hold(a HoldOrder) Held {
	if a.Key == "" {
		a.Key = uuid.NewString()
	}
	if a.Credential == "" {
		a.Credential = s.App
	}
	body := map[string]any{"user_id": a.User}
	if len(a.At) > 0 {
		body["positions"] = a.At
	}
	if a.Quantity > 0 {
		body["quantity"] = a.Quantity
	}
	if a.TTL > 0 {
		body["ttl_seconds"] = a.TTL
	}
	return heldOf(s.Do(a.API, a.Credential, http.MethodPost, "/v1/campaigns/"+a.Campaign.String()+"/holds", map[string]string{"Idempotency-Key": a.Key}, body))
}

// MustHold makes a hold that nothing stands in the way of.
func (s *System) MustHold(a HoldOrder) Held {
	s.T.Helper()
	h := s.Hold(a)
	if h.Status != http.StatusCreated || h.State != "active" {
		s.T.Fatal(h)
	}
	return h
}

// HoldNow reads a hold.
func (s *System) HoldNow(credential string, id uuid.UUID) Held {
	return heldOf(s.Do(0, credential, http.MethodGet, "/v1/holds/"+id.String(), nil, nil))
}

// Release ends a hold.
func (s *System) Release(credential string, id uuid.UUID) Answer {
	return s.Do(0, credential, http.MethodDelete, "/v1/holds/"+id.String(), nil, nil)
}

// Extend moves the deadline of a hold.
func (s *System) Extend(credential string, id uuid.UUID) Held {
	return heldOf(s.Do(0, credential, http.MethodPost, "/v1/holds/"+id.String()+"/extend", map[string]string{"Idempotency-Key": uuid.NewString()}, nil))
}

// BuyChosen buys positions, or with holdID what a hold keeps, and waits.
func (s *System) BuyChosen(api int, campaign uuid.UUID, user string, holdID uuid.UUID, at ...shape.Position) Answer {
	return s.Buy(Order{Campaign: campaign, User: user, At: at, Hold: holdID, Wait: true, API: api})
}

// TakenAt tells whether an answer, or the job in it, is a position-taken that
// names a position and no other.
func (a Answer) TakenAt(at shape.Position) bool {
	var p struct {
		Problem json.RawMessage
		Errors  []struct{ Detail string }
	}
	if err := json.Unmarshal(a.Body, &p); err != nil {
		return false
	}
	if len(p.Problem) > 0 {
		_ = json.Unmarshal(p.Problem, &p)
	}
	return a.Refusal() == "position-taken" && len(p.Errors) == 1 && strings.Contains(p.Errors[0].Detail, fmt.Sprintf("%d/%d", at.Layer, at.Column))
}

// WantOneWinner wants one of the answers to be a hold, and all others to be told
// that the position is taken. It returns the winner's.
func WantOneWinner(t *testing.T, answers []Held, at shape.Position) (winner Held) {
	t.Helper()
	winners := 0
	for i, h := range answers {
		switch {
		case h.Status == http.StatusCreated && h.State == "active":
			winner = h
			winners++
		case h.Status != http.StatusConflict || !h.TakenAt(at):
			t.Errorf("request %d: %v", i, h)
		}
	}
	if winners != 1 {
		t.Errorf("%d of %d have the position", winners, len(answers))
	}
	return winner
}

// WantHeldOnce wants one active hold in a campaign, of one position, and the
// database to be sound.
func (s *System) WantHeldOnce(campaign uuid.UUID) {
	s.T.Helper()
	var holds, positions int
	err := s.DB.QueryRow(s.T.Context(), `
		SELECT (SELECT count(*) FROM holds WHERE campaign_id = $1 AND state = 'active'),
		       (SELECT count(*) FROM positions WHERE campaign_id = $1 AND state = 'held')`, campaign).Scan(&holds, &positions)
	if c := s.CampaignNow(campaign).Counts; err != nil || holds != 1 || positions != 1 || c.Reserved != 1 || c.Sold != 0 {
		s.T.Errorf("%d holds, %d positions held, counts %+v, %v", holds, positions, c, err)
	}
}

// LockWaits counts, in all apis, the attempts to lock that ended in an outcome.
func (s *System) LockWaits(outcome string) (n float64) {
	s.T.Helper()
	for api := range s.URLs {
		n += max(0, s.Metric(api, `triprize_lock_wait_seconds_count{outcome="`+outcome+`"}`))
	}
	return n
}
