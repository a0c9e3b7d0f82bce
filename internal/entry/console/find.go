package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"triprize.example/client"
	"triprize/internal/entry/lookup"
)

// amounts are the facts that are in minor units.
var amounts = []string{"amount", "received", "refunded", "balance", "held", "captured", "fee"}

// finding is a hit as a page shows it.
type finding struct {
	lookup.Hit
	Known map[string]any // its facts
	Page  string         // where it is shown; empty: nowhere
}

// pagesOf are the pages of things, and of what facts name. Where it is not by their own id, it is by that of what they belong to.
var pagesOf = map[string]string{"campaign": "/campaigns/", "draw": "/campaigns/", "purchase": "/purchases/", "payment": "/purchases/", "job": "/jobs/",
	"wallet": "/wallets/", "from_wallet": "/wallets/", "to_wallet": "/wallets/", "webhook endpoint": "/webhooks/", "endpoint": "/webhooks/",
	"key": "/keys#", "client": "/keys#", "discrepancy": "/waiting#", "user": "/find?q=", "owner": "/find?q="}

// isOfKeys reports whether something is on the page of keys, which viewers do not see.
func isOfKeys(what string) bool { return pagesOf[what] == "/keys#" }

// pageOf returns the page of a thing or a fact; empty: it has none.
func pageOf(what string, id any) string {
	if page := pagesOf[what]; page != "" {
		return Path + page + url.QueryEscape(fmt.Sprint(id))
	}
	return ""
}

// lookUp returns what a text names. kinds are those that are looked up; none: all.
func (c *console) lookUp(ctx context.Context, text string, kinds ...string) (all []finding, err error) {
	hits, err := lookup.Find(ctx, c.DB, text, kinds...)
	for _, h := range hits {
		found := finding{Hit: h}
		if h.State != "explained" && h.State != "closed" { // the page of what waits has no such difference
			found.Page = pageOf(h.What, h.ID)
		}
		numbers := json.NewDecoder(bytes.NewReader(h.Facts))
		numbers.UseNumber()
		_ = numbers.Decode(&found.Known) // the database has made it
		currency, _ := found.Known["currency"].(string)
		for name, value := range found.Known {
			if amount, isNumber := value.(json.Number); isNumber && currency != "" && slices.Contains(amounts, name) {
				n, _ := amount.Int64()
				found.Known[name] = moneyText(n, currency)
			}
		}
		for _, name := range []string{"endpoint", "wallet", "purchase"} {
			if id, known := found.Known[name]; known && (found.Page == "" || h.What == "job") {
				found.Page = pageOf(name, id)
			}
		}
		all = append(all, found)
	}
	return all, err
}

// find shows what a text names. Where everything that it names is on one page, it leads there.
func (c *console) find(ctx context.Context, f *fiber.Ctx, _ *client.Client) (any, error) {
	text, kinds := f.Query("q"), lookup.Kinds()
	if !acts(f) {
		kinds = slices.DeleteFunc(kinds, isOfKeys)
	}
	found, err := c.lookUp(ctx, text, kinds...)
	isExact := len(found) > 0 && (text == strings.TrimSpace(text) || found[0].What != "key")
	if err == nil && !isExact { // it may have been copied with spaces: what is named without them is shown, and never led to
		found, err = c.lookUp(ctx, strings.TrimSpace(text), kinds...)
	}
	if err != nil {
		return nil, err
	}
	isUser := slices.ContainsFunc(found, func(of finding) bool { return of.Known["user"] == text || of.Known["owner"] == text }) // there is more to do
	if isExact && !isUser && found[0].Page != "" && !slices.ContainsFunc(found, func(other finding) bool { return other.Page != found[0].Page }) {
		return nil, f.Redirect(found[0].Page, http.StatusSeeOther)
	}
	of := "" // the client of the user, if it is one
	for _, hit := range found {
		if client, _ := hit.Known["client"].(string); hit.Known["user"] == text || hit.Known["owner"] == text {
			if of != "" && of != client {
				of = ""
				break
			}
			of = client
		}
	}
	return fiber.Map{"Text": text, "Found": found, "IsExact": isExact, "IsUser": isUser || len(found) == 0, "Client": of, "Kinds": strings.Join(kinds, ", ")}, nil
}
