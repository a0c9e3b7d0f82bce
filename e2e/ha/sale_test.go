//go:build ha

package ha

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/testkit/servers"
)

// buyer is patient as a client of the API should be: without an answer it repeats the request with its key.
var buyer = http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

const buyers = 8

// sale is what a crowd was promised.
type sale struct {
	t        *testing.T
	campaign uuid.UUID
	key      string

	mu   sync.Mutex
	jobs []uuid.UUID // of every 202
	at   []time.Time // when it came

	end chan struct{}
	all sync.WaitGroup
}

// open starts buyers who buy one position after the other, ten in a second each.
func open(t *testing.T, campaign uuid.UUID, key string) *sale {
	s := &sale{t: t, campaign: campaign, key: key, end: make(chan struct{})}
	for b := range buyers {
		s.all.Go(func() {
			for i := 0; ; i++ {
				s.buyUntilAccepted(fmt.Sprintf("buyer-%d-%d", b, i), 1)
				select {
				case <-s.end:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	return s
}

// buyUntilAccepted repeats a purchase until it is answered with 202.
func (s *sale) buyUntilAccepted(user string, quantity int) {
	key := uuid.NewString()
	for last := ""; s.t.Context().Err() == nil; time.Sleep(100 * time.Millisecond) {
		status, id, body := s.buy(user, key, quantity)
		switch {
		case status == http.StatusAccepted:
			s.mu.Lock()
			s.jobs, s.at = append(s.jobs, id), append(s.at, time.Now())
			s.mu.Unlock()
			return
		case status != 0 && status < http.StatusInternalServerError: // nobody else has a reason to refuse
			s.t.Errorf("%s: %d %s", user, status, body)
			return
		case body != last && testing.Verbose():
			last = body
		}
	}
}

func (s *sale) buy(user, key string, quantity int) (status int, id uuid.UUID, body string) {
	draft, _ := json.Marshal(map[string]any{"user_id": user, "selection": map[string]any{"quantity": quantity}, "payment": map[string]any{"method": "external"}})
	request, err := http.NewRequest(http.MethodPost, "http://proxy:8080/v1/campaigns/"+s.campaign.String()+"/purchases", bytes.NewReader(draft))
	servers.NoError(s.t, err)
	request.Header.Set("Authorization", "Bearer "+s.key)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	response, err := buyer.Do(request)
	if err != nil {
		return 0, id, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct{ ID uuid.UUID }
	var text bytes.Buffer
	if _, err := text.ReadFrom(response.Body); err != nil {
		return 0, id, err.Error()
	}
	_ = json.Unmarshal(text.Bytes(), &answer)
	return response.StatusCode, answer.ID, text.String()
}

// accepted counts the 202s.
func (s *sale) accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// close ends the sale when every key that was used has its 202.
func (s *sale) close() {
	close(s.end)
	s.all.Wait()
}

// pause returns the longest time without a 202 since a moment, and the time from another until the next 202.
func (s *sale) pause(since, promotion time.Time) (longest, after time.Duration) {
	after = -1
	last := since
	for _, at := range s.at {
		if at.Before(since) {
			continue
		}
		longest, last = max(longest, at.Sub(last)), at
		if after < 0 && at.After(promotion) {
			after = at.Sub(promotion)
		}
	}
	return longest, after
}
