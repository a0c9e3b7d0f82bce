package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/google/uuid"

	"triprize.example/client"
)

func Example() {
	server := httptest.NewServer(triprize) // a Triprize with one position left
	defer server.Close()

	c, err := client.New(server.URL, "tp_a1b2c3_secret")
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	campaign := uuid.MustParse("01999f4e-0000-7d20-9c55-3f8a1b2c4d5e")

	for _, user := range []string{"ada", "grace"} {
		job, err := c.Buy(ctx, campaign, client.PurchaseRequest{
			UserID:    user,
			Selection: client.Selection{Quantity: 1},
			Payment:   client.PaymentDraft{Method: client.PaymentDraftMethodExternal, Reference: "order of " + user},
		}, client.WithKey("order of "+user))
		refused := job.Err() // why the job has failed
		if e := (*client.Error)(nil); errors.As(err, &e) && e.Status == http.StatusConflict {
			refused = e // rejected without a job
		}
		if refused != nil {
			fmt.Println(user, "gets the money back:", refused)
			continue
		}
		if err != nil {
			panic(err) // the outcome is unknown: buy again with the same key
		}
		bought, err := job.Purchased()
		if err != nil {
			panic(err) // it waits for the buyer
		}
		fmt.Println(user, "has position", bought.Positions[0].Layer, "/", bought.Positions[0].Column, "for", bought.Amount, bought.Currency)
	}
	// Output:
	// ada has position 3 / 2 for 100 JPY
	// grace gets the money back: 409 sold-out every position is sold
}

var triprize = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	state := client.JobStateSucceeded
	if r.Header.Get("Idempotency-Key") != "order of ada" {
		state = client.JobStateFailed
	}
	say(w, http.StatusOK, job(uuid.New(), state))
})
