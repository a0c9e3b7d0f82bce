package httpapi

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
)

// Whatever is sent as a body: it is refused as a request that is not valid, or
// it is what the operation's type can hold, and canonical.
func FuzzABodyThatPassesIsCanonicalAndReadable(f *testing.F) {
	document, err := LoadContract()
	if err != nil {
		f.Fatal(err)
	}
	targets := map[string]func() any{
		"createWebhookEndpoint":   func() any { return new(contract.WebhookEndpointDraft) },
		"patchWebhookEndpoint":    func() any { return new(contract.WebhookEndpointPatch) },
		"rotateWebhookSecret":     func() any { return new(contract.WebhookRotation) },
		"replayWebhookDeliveries": func() any { return new(contract.WebhookReplay) },
		"createCampaign":          func() any { return new(contract.CampaignDraft) },
		"patchCampaign":           func() any { return new(contract.CampaignPatch) },
		"createHold":              func() any { return new(contract.HoldRequest) },
		"extendHold":              func() any { return new(contract.HoldExtension) },
		"openWallet":              func() any { return new(contract.WalletDraft) },
		"creditWallet":            func() any { return new(contract.Movement) },
		"debitWallet":             func() any { return new(contract.Movement) },
		"authorize":               func() any { return new(contract.AuthorizationDraft) },
		"captureAuthorization":    func() any { return new(contract.Capture) },
		"voidAuthorization":       func() any { return new(contract.Voiding) },
		"transfer":                func() any { return new(contract.TransferDraft) },
		"requestPurchase":         func() any { return new(contract.PurchaseRequest) },
		"cancelPurchase":          func() any { return new(contract.CancellationRequest) },
		"cancelCampaign":          func() any { return new(contract.CampaignCancellation) },
		"resolvePayment":          func() any { return new(contract.PaymentResolutionRequest) },
		"resolveRefund":           func() any { return new(contract.RefundResolutionRequest) },
		"stripeWebhook":           func() any { return new(map[string]any) },
	}
	for i := range document.Operations {
		if o := document.Operations[i]; o.HasBody && targets[o.ID] == nil {
			f.Errorf("%s is new: say here what it reads", o.ID)
		}
	}
	for _, body := range []string{
		`{"user_id":"a","selection":{"quantity":1.0},"payment":{"method":"external","reference":"\u0061"}}`,
		`{"name":"n","base_length":3,"currency":"JPY","purchase_limit":null,"sale_ends_at":"2030-01-01T00:00:00.5+09:00","layers":[{"layer":1,"price":1e3,"prizes":[{"name":"p","count":1}]}]}`,
		`{"sale_ends_at":"2030-01-01t00:00:00z"}`, `{"reason":"\u0061"}`, `{"reason":"a\u0000"}`, `{"sale_ends_at":"2030-06-30T23:59:60Z","policies":{"beacon":true,"cancellation_until":null}}`, `{"name":"a","name":"b"}`, `{"name":"\ud83d\ude00","Name":"b"}`,
		`{"purchase_limit":1000000.0000000001}`, `{"purchase_limit":-0}`, `{"name":"\ud800"}`, "{\"name\":\"\xff\"}", `{"base_length":1e400}`, `{"base_length":1e-400}`, "", " ", "{}{}", "[]", strings.Repeat("[", 20_000),
	} {
		f.Add([]byte(body), "application/json")
	}
	f.Add([]byte(`{"name":"n"}`), "application/json; charset=utf-16")
	f.Add([]byte(`{"name":"n"}`), `multipart/form-data; boundary="x"`)
	app := fiber.New()
	f.Fuzz(func(t *testing.T, body []byte, media string) {
		for i := range document.Operations {
			o := &document.Operations[i]
			if !o.HasBody {
				continue
			}
			var r fasthttp.RequestCtx
			r.Request.Header.SetMethod(o.Method)
			r.Request.Header.SetContentType(media)
			c := app.AcquireCtx(&r)
			r.Request.SetBodyRaw(body)
			err := checkMedia(c, o)
			var canonical []byte
			var actsFor string
			if err == nil {
				canonical, actsFor, err = readBody(c, o, bytes.Clone(body), nil)
			}
			left := c.Request().Body()
			if code := fault.CodeOf(err); err != nil && code != fault.InvalidRequest && code != fault.UnsupportedMediaType {
				t.Errorf("%s: %v", o.ID, err)
			}
			if err == nil {
				if !bytes.Equal(left, canonical) || !json.Valid(canonical) || !utf8.Valid(canonical) || !utf8.ValidString(actsFor) {
					t.Errorf("%s: %q is read as %q", o.ID, body, left)
				}
				if err := decodeStrictly(canonical, targets[o.ID]()); err != nil {
					t.Errorf("%s: passes and cannot be read: %q: %v", o.ID, canonical, err)
				}
				if again, _, err := readBody(c, o, bytes.Clone(canonical), nil); err != nil || !bytes.Equal(again, canonical) {
					t.Errorf("%s: the canonical form of %q is %q: %v", o.ID, canonical, again, err)
				}
			}
			app.ReleaseCtx(c)
		}
	})
}

// Whatever stands in the header: an idempotency key is printable ASCII of a
// bounded length, the same with and without quotes.
func FuzzAnIdempotencyKeyIsPrintableAndOfBoundedLength(f *testing.F) {
	for _, text := range []string{"", `"`, `""`, `"a"`, `"a\"b\\"`, `a b`, "a\x00", "schlüssel", strings.Repeat("k", 255), strings.Repeat("k", 256), `"` + strings.Repeat(`\"`, 255) + `"`, `"\`, `\"`, "a, b", "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := idempotencyKey(text)
		switch code := fault.CodeOf(err); {
		case err != nil:
			if key != "" || code != fault.KeyInvalid && (code != fault.KeyMissing || text != "") {
				t.Errorf("%q is refused with %v and %q", text, err, key)
			}
			return
		case len(key) == 0 || len(key) > maxKey || !printable(key):
			t.Errorf("%q is the key %q", text, key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := idempotencyKey(quoted); err != nil || again != key {
			t.Errorf("%q in quotes is %q, %v", key, again, err)
		}
	})
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// Whatever stands in the header: the wait is none, or whole seconds, or the longest.
func FuzzAPreferredWaitIsBounded(f *testing.F) {
	for _, text := range []string{"", "wait", "wait=", "wait=1", "WAIT=30", `wait="5"`, "wait=-1", "wait=1e9", "wait=99999999999999999999", "respond-async, wait=2", "wait=0, wait=3", ",,=,", "wait = 4 ; a=b", "wait=4;until=final", `wait=4 ; UNTIL="Final"`, "until=final; wait=3", "\xff=1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const longest = 30 * time.Second
		w := waitIn(text, longest)
		if wait := w.longest; wait < 0 || wait > longest || wait%time.Second != 0 || wait > 0 && !strings.Contains(strings.ToLower(text), "wait") {
			t.Errorf("%q asks for %s", text, wait)
		}
		if w.untilFinal && (w.longest == 0 || !strings.Contains(strings.ToLower(text), "final")) {
			t.Errorf("%q asks for the end", text)
		}
	})
}

// Whatever stands in the header: what a client already has is told from what it
// has not, and an answer that it has is never sent as unchanged to another tag.
func FuzzOnlyItsOwnTagMakesAnAnswerUnchanged(f *testing.F) {
	answer, err := tagged(map[string]int{"a": 1}, nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{"", "*", answer.tag, strings.TrimPrefix(answer.tag, "W/"), `"a", ` + answer.tag, answer.tag + "x", `W/W/` + answer.tag, `"`, ",,,", `"*"`, "* ", "\xff"} {
		f.Add(text)
	}
	opaque := strings.Trim(strings.TrimPrefix(answer.tag, "W/"), `"`)
	f.Fuzz(func(t *testing.T, text string) {
		got := answer.matched(&text)
		if got.unchanged && !strings.Contains(text, opaque) && !strings.Contains(text, "*") {
			t.Errorf("%q is taken for %s", text, answer.tag)
		}
		with := text + ", " + answer.tag
		if !answer.matched(&with).unchanged {
			t.Errorf("%q does not match %s", with, answer.tag)
		}
		if answer.matched(nil).unchanged || got.tag != answer.tag || !bytes.Equal(got.body, answer.body) {
			t.Errorf("%q changes the answer", text)
		}
	})
}
