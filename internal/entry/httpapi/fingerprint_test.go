package httpapi

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"triprize/internal/entry/httpapi/body"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/platform/config"
	"triprize/internal/platform/openapi"
)

// stored are fingerprints that a database has: a key stays the same request's, whatever the contract
// has learned since, and however the request is written.
var stored = []struct{ operation, path, header, body, fingerprint string }{
	{"requestPurchase", "/v1/campaigns/01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e/purchases", "",
		`{"user_id":"mina","selection":{"quantity":2,"layer":3},"payment":{"method":"external","reference":"order-4711"}}`, "132e28ffce6d94e3fa7ed70a215c718482032d69a7cd5a39a8d9946a4cdb43fe"},
	{"requestPurchase", "/v1/campaigns/01999F4E-8B1C-7D20-9C55-3F8A1B2C4D5E/purchases", "",
		" { \"payment\" : {\"reference\":\"order-47\\u00311\", \"method\":\"external\",\t\"return_url\":null}, \"selection\":{\"layer\":3.0,\"positions\":null, \"quantity\":0.2e1}, \"user_id\":\"mina\"}\n", "132e28ffce6d94e3fa7ed70a215c718482032d69a7cd5a39a8d9946a4cdb43fe"},
	{"requestPurchase", "/v1/campaigns/01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e/purchases", "",
		`{"user_id":"mina","selection":{"positions":[{"layer":1,"column":1},{"number":3}]},"payment":{"method":"wallet"},"metadata":{"order":"Ä \"1\"","🎟":"x","\ue000":"y"}}`, "e95a88cb418d8a5d5a26c45f4618dbec89b932bdf6d31f09b54ce11ac41d0d4a"},
	{"createHold", "/v1/campaigns/01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e/holds", "", `{"user_id":"mina","quantity":2,"adjacent":true,"ttl_seconds":60}`, "62a27c647a5b6da6b3e9b1fc6e59ee5cf07c682b733fec85c3adbf2a4fbe0528"},
	{"createHold", "/v1/campaigns/01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e/holds", "", `{"ttl_seconds":6e1,"layer":null,"adjacent":true,"user_id":"mina","quantity":2}`, "62a27c647a5b6da6b3e9b1fc6e59ee5cf07c682b733fec85c3adbf2a4fbe0528"},
	{"requestDraw", "/v1/campaigns/01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e/draw", "", ``, "9c5ec352ed37016d6b86220e56bfd50c133395d777be2eda2ce3b3461378e5a0"},
	{"requestDraw", "/v1/campaigns/01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e/draw", "", ` { } `, "9c5ec352ed37016d6b86220e56bfd50c133395d777be2eda2ce3b3461378e5a0"},
	{"creditWallet", "/v1/wallets/01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e/credit", "", `{"amount":500,"description":"gift"}`, "be534683d01f0e22821698dfa8805e22428bf54fb69e74d95a9f663af34855d3"},
	{"creditWallet", "/v1/wallets/01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e/credit", "", `{"description":"gift","amount":5e2,"reference":null}`, "be534683d01f0e22821698dfa8805e22428bf54fb69e74d95a9f663af34855d3"},
	{"creditWallet", "/v1/wallets/01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e/credit", `"7"`, `{"amount":500,"description":"gift"}`, "f159b061ee63de83750a9dca35769f2804e98f82bb1fd8b1dbad68fdd3dbb7d1"},
	{"creditWallet", "/v1/wallets/01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e/credit", `W/"7"`, `{"amount":500,"description":"gift"}`, "f159b061ee63de83750a9dca35769f2804e98f82bb1fd8b1dbad68fdd3dbb7d1"},
}

func TestAStoredFingerprintStaysTheFingerprintOfItsRequest(t *testing.T) {
	t.Parallel()
	contract, err := LoadContract()
	if err != nil {
		t.Fatal(err)
	}
	settings := config.Settings{}
	settings.API.BodyLimitBytes, settings.Campaigns.MaxQuantity, settings.Holds.MaxPositions = 1<<20, 10, 10
	s := &server{bodies: body.New(body.Room, time.Second, 0)}
	app := fiber.New(fiber.Config{StreamRequestBody: true, Immutable: true})
	for _, one := range stored {
		i := slices.IndexFunc(contract.Operations, func(o openapi.Operation) bool { return o.ID == one.operation })
		o := &contract.Operations[i]
		app.Post(strings.NewReplacer("{", ":", "}", "").Replace(o.Path), func(c *fiber.Ctx) error {
			var request call.Call
			if _, err := s.check(t.Context(), c, o, &request, body.BoundsOf(o, settings)); err != nil {
				return err
			}
			return c.SendString(hex.EncodeToString(request.Fingerprint[:]))
		})
		request := httptest.NewRequest(http.MethodPost, one.path, strings.NewReader(one.body))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", "k")
		if one.header != "" {
			request.Header.Set("If-Match", one.header)
		}
		answer, err := app.Test(request, -1)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		_, _ = fmt.Fscanln(answer.Body, &got)
		_ = answer.Body.Close()
		if got != one.fingerprint {
			t.Errorf("%s %s: %d %s, want %s", one.operation, one.body, answer.StatusCode, got, one.fingerprint)
		}
	}
}

// A worker may trace where the api does not. It follows what the api has stored.
func TestTheSampledFlagOfACallerIsNotStoredWhileTracingIsOff(t *testing.T) {
	t.Parallel()
	const sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"
	r := &fasthttp.RequestCtx{}
	r.Request.Header.Set(traceParentHeader, sent+"1")
	if got := traceparent(fiber.New().AcquireCtx(r)); got != sent+"0" {
		t.Errorf("stored is %q", got)
	}
}
