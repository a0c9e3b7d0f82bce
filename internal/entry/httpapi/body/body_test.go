package body_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi"
	"triprize/internal/entry/httpapi/body"
	"triprize/internal/entry/httpapi/contract"
)

// sent is a request whose body, of a length that nobody knows, is still to come.
func sent(app *fiber.App) (c *fiber.Ctx, write *io.PipeWriter) {
	c = app.AcquireCtx(&fasthttp.RequestCtx{})
	read, write := io.Pipe()
	c.Request().SetBodyStream(read, -1)
	return c, write
}

// An owner that sends long bodies slowly, or many, leaves room and turns to the next.
func TestLongBodiesOfAnOwnerLeaveRoomAndTurnsToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit, places, many = 1 << 20, 8, 50
		bodies, app := body.New(places*limit, time.Minute, 0), fiber.New()
		ctx, end := context.WithCancel(t.Context())
		var slow []*io.PipeWriter
		for range many {
			c, write := sent(app)
			slow = append(slow, write)
			go func() { _ = bodies.Read(ctx, c, "slow", limit, func([]byte) error { return nil }) }()
		}
		began := 0
		for _, write := range slow {
			go func() {
				if _, err := io.WriteString(write, "{"); err == nil { // it is read: it has room
					began++ // one at a time: synctest waits
				}
			}()
			synctest.Wait()
		}
		if began != places/2 {
			t.Errorf("%d slow bodies have room, want half of %d", began, places)
		}

		// All turns are taken, and many wait before the other comes.
		var order []string
		free := make(chan struct{})
		read := func(owner string) {
			c, write := sent(app)
			go func() { _, _ = io.WriteString(write, strings.Repeat(" ", 1000)); _ = write.Close() }()
			go func() {
				if err := bodies.Read(t.Context(), c, owner, 1<<10, func([]byte) error {
					order = append(order, owner)
					<-free
					return nil
				}); err != nil {
					t.Error(owner, err)
				}
			}()
			synctest.Wait()
		}
		for range many {
			read("many")
		}
		taken := len(order)
		read("quiet")
		for range many + 1 {
			free <- struct{}{}
			synctest.Wait()
		}
		if place := strings.Join(order[:taken+2], " "); !strings.Contains(place, "quiet") {
			t.Errorf("with %d turns the order was %s", taken, place)
		}
		end()
		for _, write := range slow {
			_ = write.Close()
		}
	})
}

// Decoders are used again. None may bring anything from one body into the next.
func TestNothingOfABodyIsReadWithTheNext(t *testing.T) {
	type pair struct{ A, B int }
	for _, before := range []string{`{"a":1}`, `{"a":1}{"b":2}`, `{"a":1}  `, `{"a":`, `{"a":"x"}`, `{"c":1}`, `{"a":1}]`, `{"a":1}` + strings.Repeat(" ", 10_000) + `{"b":2}`} {
		for range 100 { // decoders are kept by chance
			_ = body.DecodeStrictly([]byte(before), new(pair))
			var next pair
			if err := body.DecodeStrictly([]byte(`{"a":3}`), &next); err != nil || next != (pair{A: 3}) {
				t.Fatalf("after %.20q: %+v, %v", before, next, err)
			}
		}
	}
	if err := body.DecodeStrictly([]byte(`{"a":3,"c":4}`), new(pair)); err == nil {
		t.Error("a field that the type does not have is no error")
	}
}

// Any body: it is refused as a request that is not valid, or
// it is what the operation's type can hold, and canonical.
func FuzzABodyThatPassesIsCanonicalAndReadable(f *testing.F) {
	document, err := httpapi.LoadContract()
	if err != nil {
		f.Fatal(err)
	}
	targets := map[string]func() any{
		"createWebhookEndpoint":     func() any { return new(contract.WebhookEndpointDraft) },
		"patchWebhookEndpoint":      func() any { return new(contract.WebhookEndpointPatch) },
		"rotateWebhookSecret":       func() any { return new(contract.WebhookRotation) },
		"replayWebhookDeliveries":   func() any { return new(contract.WebhookReplay) },
		"createCampaign":            func() any { return new(contract.CampaignDraft) },
		"patchCampaign":             func() any { return new(contract.CampaignPatch) },
		"blockPositions":            func() any { return new(contract.PositionsBlock) },
		"unblockPositions":          func() any { return new(contract.PositionsUnblock) },
		"createHold":                func() any { return new(contract.HoldRequest) },
		"extendHold":                func() any { return new(contract.HoldExtension) },
		"openWallet":                func() any { return new(contract.WalletDraft) },
		"creditWallet":              func() any { return new(contract.Movement) },
		"debitWallet":               func() any { return new(contract.Movement) },
		"authorize":                 func() any { return new(contract.AuthorizationDraft) },
		"captureAuthorization":      func() any { return new(contract.Capture) },
		"voidAuthorization":         func() any { return new(contract.Voiding) },
		"transfer":                  func() any { return new(contract.TransferDraft) },
		"requestPurchase":           func() any { return new(contract.PurchaseRequest) },
		"tryPayment":                func() any { return new(contract.PaymentTry) },
		"cancelPurchase":            func() any { return new(contract.CancellationRequest) },
		"cancelCampaign":            func() any { return new(contract.CampaignCancellation) },
		"voidDraw":                  func() any { return new(contract.CampaignCancellation) },
		"submitDrawRound":           func() any { return new(contract.DrawRoundSignature) },
		"resolvePayment":            func() any { return new(contract.PaymentResolutionRequest) },
		"resolveRefund":             func() any { return new(contract.RefundResolutionRequest) },
		"explainPaymentDiscrepancy": func() any { return new(contract.PaymentDiscrepancyExplanationRequest) },
		"resolveRefunds":            func() any { return new(contract.RefundResolutionRequest) },
		"revokeKey":                 func() any { return new(contract.KeyRevocation) },
		"eraseUser":                 func() any { return new(contract.Erasure) },
		"closeMonth":                func() any { return new(contract.CloseMonth) },
		"approveRequest":            func() any { return new(contract.ApprovalDecision) },
		"rejectRequest":             func() any { return new(contract.ApprovalDecision) },
		"withdrawRequest":           func() any { return new(contract.ApprovalDecision) },
		"stripeWebhook":             func() any { return new(map[string]any) },
	}
	for i := range document.Operations {
		if o := document.Operations[i]; o.HasBody && targets[o.ID] == nil {
			f.Errorf("%s is new: say here what it reads", o.ID)
		}
	}
	for _, seed := range []string{
		`{"user_id":"a","selection":{"quantity":1.0},"payment":{"method":"external","reference":"\u0061"}}`,
		`{"name":"n","base_length":3,"currency":"JPY","purchase_limit":null,"sale_ends_at":"2030-01-01T00:00:00.5+09:00","layers":[{"layer":1,"price":1e3,"prizes":[{"name":"p","count":1}]}]}`,
		`{"sale_ends_at":"2030-01-01t00:00:00z"}`, `{"reason":"\u0061"}`, `{"reason":"a\u0000"}`, `{"sale_ends_at":"2030-06-30T23:59:60Z","policies":{"beacon":true,"cancellation_until":null}}`, `{"name":"a","name":"b"}`, `{"name":"\ud83d\ude00","Name":"b"}`,
		`{"purchase_limit":1000000.0000000001}`, `{"purchase_limit":-0}`, `{"name":"\ud800"}`, "{\"name\":\"\xff\"}", `{"base_length":1e400}`, `{"base_length":1e-400}`, "", " ", "{}{}", "[]", strings.Repeat("[", 20_000),
	} {
		f.Add([]byte(seed), "application/json")
	}
	f.Add([]byte(`{"name":"n"}`), "application/json; charset=utf-16")
	f.Add([]byte(`{"name":"n"}`), `multipart/form-data; boundary="x"`)
	app := fiber.New()
	f.Fuzz(func(t *testing.T, sent []byte, media string) {
		for i := range document.Operations {
			o := &document.Operations[i]
			if !o.HasBody {
				continue
			}
			var r fasthttp.RequestCtx
			r.Request.Header.SetMethod(o.Method)
			r.Request.Header.SetContentType(media)
			c := app.AcquireCtx(&r)
			r.Request.SetBodyRaw(sent)
			err := body.CheckMedia(c, o)
			var canonical []byte
			var actsFor string
			if err == nil {
				canonical, actsFor, err = body.ReadJSON(c, o, bytes.Clone(sent), nil)
			}
			left := c.Request().Body()
			if code := fault.CodeOf(err); err != nil && code != fault.InvalidRequest && code != fault.UnsupportedMediaType {
				t.Errorf("%s: %v", o.ID, err)
			}
			if err == nil {
				if !bytes.Equal(left, canonical) || !json.Valid(canonical) || !utf8.Valid(canonical) || !utf8.ValidString(actsFor) {
					t.Errorf("%s: %q is read as %q", o.ID, sent, left)
				}
				if err := body.DecodeStrictly(canonical, targets[o.ID]()); err != nil {
					t.Errorf("%s: passes and cannot be read: %q: %v", o.ID, canonical, err)
				}
				if again, _, err := body.ReadJSON(c, o, bytes.Clone(canonical), nil); err != nil || !bytes.Equal(again, canonical) {
					t.Errorf("%s: the canonical form of %q is %q: %v", o.ID, canonical, again, err)
				}
			}
			app.ReleaseCtx(c)
		}
	})
}
