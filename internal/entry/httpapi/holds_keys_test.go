package httpapi_test

import (
	"bytes"
	"net/http"
	"testing"

	"triprize/internal/domain/shape"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
)

// The list of the seat-booking document of what must not book a seat twice; a
// lock that expires in mid-transaction is in holds_crash_test.go, and crowds are
// in holds_test.go.

func TestOneKeyFiftyTimesInParallelIsOneHold(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(4)
	same := fleet.HoldOrder{Campaign: id, User: "a", Key: "the same", At: []shape.Position{fixture.At(2, 1)}}
	answers := fleet.AtOnce(50, func(i int) fleet.Held {
		a := same
		a.API = i
		return s.Hold(a)
	})
	first, replayed := answers[0], 0
	for i, h := range answers {
		if h.Status != http.StatusCreated || h.ID != first.ID || !bytes.Equal(h.Body, first.Body) {
			t.Errorf("request %d: %v, and the first: %v", i, h, first)
		}
		if h.Header.Get("Idempotent-Replayed") == "true" {
			replayed++
		}
	}
	if replayed != 49 {
		t.Errorf("%d of 50 answers say that they are replays", replayed)
	}
	s.WantHeldOnce(id)
	if a := s.Release(s.App, first.ID); a.Status != http.StatusNoContent {
		t.Fatal(a)
	}
	if again := s.Hold(same); again.ID != first.ID || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("once it is released: %v", again)
	}
	if now := s.HoldNow(s.App, first.ID); now.State != "released" {
		t.Errorf("a replay revived it: %v", now)
	}
}

func TestAKeyOfAHoldIsRefusedToAnotherRequest(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id, other := s.Campaign(4), s.Campaign(4)
	first := s.MustHold(fleet.HoldOrder{Campaign: id, User: "a", Key: "k", At: []shape.Position{fixture.At(2, 1)}})
	for what, a := range map[string]fleet.HoldOrder{
		"another position": {Campaign: id, User: "a", Key: "k", At: []shape.Position{fixture.At(2, 2)}},
		"one more":         {Campaign: id, User: "a", Key: "k", At: []shape.Position{fixture.At(2, 1), fixture.At(2, 2)}},
		"another user":     {Campaign: id, User: "b", Key: "k", At: []shape.Position{fixture.At(2, 1)}},
		"another campaign": {Campaign: other, User: "a", Key: "k", At: []shape.Position{fixture.At(2, 1)}},
		"another ttl":      {Campaign: id, User: "a", Key: "k", At: []shape.Position{fixture.At(2, 1)}, TTL: 60},
		"a number of them": {Campaign: id, User: "a", Key: "k", Quantity: 1},
	} {
		if h := s.Hold(a); h.Status != http.StatusUnprocessableEntity || h.Refusal() != "idempotency-key-reused" {
			t.Errorf("%s: %v", what, h)
		}
	}
	if a := s.Buy(fleet.Order{Campaign: id, User: "a", Key: "k"}); a.Status != http.StatusUnprocessableEntity || a.Refusal() != "idempotency-key-reused" {
		t.Errorf("a purchase: %v", a)
	}
	if again := s.Hold(fleet.HoldOrder{Campaign: id, User: "a", Key: "k", At: []shape.Position{fixture.At(2, 1)}}); again.ID != first.ID {
		t.Errorf("the same: %v", again)
	}
	s.WantHeldOnce(id)
}

func TestAKeyWithTwoPayloadsAtOnceIsOneHold(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(4)
	answers := fleet.AtOnce(40, func(i int) fleet.Held {
		return s.Hold(fleet.HoldOrder{Campaign: id, User: "a", Key: "k", At: []shape.Position{fixture.At(4, 1+i%2)}, API: i / 2})
	})
	won := 0 // which of the two payloads came first
	if answers[1].Status == http.StatusCreated {
		won = 1
	}
	for i, h := range answers {
		if i%2 == won && (h.Status != http.StatusCreated || h.ID != answers[won].ID) || i%2 != won && h.Refusal() != "idempotency-key-reused" {
			t.Errorf("request %d, when the payloads of %d came first: %v", i, won, h)
		}
	}
	s.WantHeldOnce(id)
}
