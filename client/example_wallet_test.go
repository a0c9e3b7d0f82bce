package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/google/uuid"

	"triprize.example/client"
)

func ExampleWithVersion() {
	server := httptest.NewServer(bank) // a wallet with 500 yen, of which somebody spends 300 meanwhile
	defer server.Close()

	c, err := client.New(server.URL, "tp_a1b2c3_secret")
	if err != nil {
		panic(err)
	}
	ctx, id := context.Background(), uuid.MustParse("01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e")
	for {
		wallet, err := c.GetWallet(ctx, id)
		if err != nil {
			panic(err)
		}
		fmt.Println("it has", wallet.Available, wallet.Currency)
		left, err := c.DebitWallet(ctx, id, client.Movement{Amount: wallet.Available / 2, Description: "half of it"}, client.WithVersion(wallet.Version))
		if refused := (*client.Error)(nil); errors.As(err, &refused) && refused.Code == client.CodeVersionMismatch {
			continue // decide again, on what it has now
		}
		if err != nil {
			panic(err) // it is not known whether it was paid: ask again with the same key
		}
		fmt.Println("it keeps", left.Available)
		return
	}
	// Output:
	// it has 500 JPY
	// it has 200 JPY
	// it keeps 100
}

// bank answers the first read with what is out of date a moment later.
var bank = func() http.Handler {
	reads, mux := 0, http.NewServeMux()
	mux.HandleFunc("GET /v1/wallets/{id}", func(w http.ResponseWriter, _ *http.Request) {
		if reads++; reads == 1 {
			say(w, http.StatusOK, client.Wallet{Currency: "JPY", Balance: 500, Available: 500, Version: 7})
			return
		}
		say(w, http.StatusOK, client.Wallet{Currency: "JPY", Balance: 200, Available: 200, Version: 8})
	})
	mux.HandleFunc("POST /v1/wallets/{id}/debit", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-Match") != `"8"` {
			refuseWith(w, http.StatusPreconditionFailed, client.CodeVersionMismatch, "")
			return
		}
		say(w, http.StatusOK, client.Wallet{Currency: "JPY", Balance: 100, Available: 100, Version: 9})
	})
	return mux
}()
