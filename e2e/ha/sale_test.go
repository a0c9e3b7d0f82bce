//go:build ha || compose

package ha

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
)

// sale is what a crowd was promised.
type sale struct {
	*fleet.System
	campaign uuid.UUID
	wait     bool // each buyer waits until the purchase is final

	mu     sync.Mutex
	jobs   []uuid.UUID // of every purchase that was accepted
	at     []time.Time // when
	failed []int       // the status of every other answer; 0: there was none

	end chan struct{}
	all sync.WaitGroup
}

// open starts buyers who buy one position after the other, ten in a second each.
func (s *sale) open(buyers int) {
	s.end = make(chan struct{})
	for b := range buyers {
		s.all.Go(func() {
			for i := 0; ; i++ {
				s.buy(fmt.Sprintf("buyer-%d-%d", b, i), 1)
				select {
				case <-s.end:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
}

// close ends the sale when every key that was used has its 202.
func (s *sale) close() {
	close(s.end)
	s.all.Wait()
}

// buy sends an order with one key until it is accepted.
func (s *sale) buy(user string, quantity int) {
	order := fleet.Order{Campaign: s.campaign, User: user, Key: uuid.NewString(), Quantity: quantity, Wait: s.wait}
	for s.T.Context().Err() == nil {
		switch a := s.Buy(order); {
		case a.Status == http.StatusAccepted || s.wait && a.Status == http.StatusOK:
			s.mu.Lock()
			s.jobs, s.at = append(s.jobs, a.ID), append(s.at, time.Now())
			s.mu.Unlock()
			return
		case a.Status != 0 && (a.Status < http.StatusInternalServerError || a.Code == "" || a.Header.Get("Retry-After") == ""): // nobody has a reason to refuse; who cannot accept says so in a problem, as proxies do
			s.T.Errorf("%s: %s %s", user, a, a.Body)
			return
		default:
			s.mu.Lock()
			s.failed = append(s.failed, a.Status)
			s.mu.Unlock()
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// accepted counts the purchases that were accepted.
func (s *sale) accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// pause returns the longest time without a 202 since a moment, and the time from a later one until the next 202.
func (s *sale) pause(since, later time.Time) (longest, next time.Duration) {
	for _, at := range s.at { // in order
		if at.After(later) && next == 0 {
			next = at.Sub(later)
		}
		if at.After(since) {
			longest, since = max(longest, at.Sub(since)), at
		}
	}
	return longest, next
}
