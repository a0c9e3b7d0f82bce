package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/webhook"
)

// hearing is the receiver of the quiet app: how long after a purchase its event arrives.
type hearing struct {
	*httptest.Server
	mu   sync.Mutex
	took []time.Duration
}

func hear() *hearing {
	h := new(hearing)
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		var event struct{ Timestamp time.Time }
		if json.NewDecoder(request.Body).Decode(&event) == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.took = append(h.took, time.Since(event.Timestamp))
		}
	}))
	return h
}

// of returns how long the events of so many purchases took. Those that have not arrived after
// longestTail count with that.
func (h *hearing) of(ctx context.Context, purchases int) (took []time.Duration) {
	for end := time.Now().Add(longestTail); ; wait(ctx, 10*time.Millisecond, nil) {
		h.mu.Lock()
		if len(h.took) >= purchases || time.Now().After(end) || ctx.Err() != nil {
			break
		}
		h.mu.Unlock()
	}
	defer h.mu.Unlock()
	took, h.took = h.took, nil
	for len(took) < purchases {
		took = append(took, longestTail)
	}
	return took
}

const (
	hogEndpoints = 16 // all that one client may have
	hogEvents    = 1000
	hogAnswers   = 1400 * time.Millisecond // shorter than what counts as slow
)

// hogWebhooks makes hogEvents for each of hogEndpoints, whose receiver takes its time.
func hogWebhooks(ctx context.Context, d *disturber) {
	tag, err := d.sys.db.Exec(ctx, `SELECT emit_webhooks(array_fill('stranger'::text, ARRAY[$2::int]), array_fill('purchase.completed'::text, ARRAY[$2::int]),
		array_fill($1::uuid, ARRAY[$2::int]), array_fill(NULL::bigint, ARRAY[$2::int]), array_fill($3::uuid, ARRAY[$2::int]))`,
		d.purchase, hogEvents, d.sys.campaigns[noisyCampaign])
	if err != nil || tag.RowsAffected() != 1 {
		d.odd = append(d.odd, fmt.Sprint("no events: ", err))
	}
	<-ctx.Done()
}

// openEndpoints makes the endpoints of the other client, and a purchase of it.
func openEndpoints(ctx context.Context, d *disturber) error {
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(hogAnswers) }))
	d.group.Go(func() { <-ctx.Done(); slow.Close() })
	body := fmt.Sprintf(`{"user_id":"stranger","selection":{"quantity":1},"payment":{"method":"external","reference":%q}}`, uuid.NewString())
	if err := d.ask(ctx, d.request(http.MethodPost, d.noisy()+"/purchases", d.app(), body), nil); err != nil {
		return err
	}
	for range hogEndpoints {
		if err := d.sys.listen(ctx, "stranger", slow.URL, webhook.PurchaseCompleted); err != nil {
			return err
		}
	}
	for end := time.Now().Add(longestTail); ; {
		found := d.sys.db.QueryRow(ctx, `SELECT id FROM purchases WHERE client = 'stranger' AND completed_at IS NOT NULL`).Scan(&d.purchase)
		if found == nil || time.Now().After(end) {
			return found
		}
		wait(ctx, 10*time.Millisecond, nil)
	}
}
