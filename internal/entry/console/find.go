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
	"github.com/google/uuid"

	"triprize.example/client"
	"triprize/internal/entry/lookup"
)

// mountFind registers the page that says what an id or a word is, the page of a job, and purchases as CSV.
func (c *console) mountFind(r fiber.Router) {
	r.Get("/find", c.find)
	c.livePage(r, "/jobs/:id", "job", "id", "Job", func(ctx context.Context, api *client.Client, id string) (any, error) {
		return api.GetJob(ctx, pathID(id), client.GetJobParams{})
	}, nil)
	r.Get("/campaigns/:id/purchases.csv", func(f *fiber.Ctx) error { // the API sends it, at the pace of its reader
		defer f.Path(f.Path()) // a page that says why not leads here again
		f.Path("/v1/campaigns/" + pathID(f.Params("id")).String() + "/purchases")
		f.Request().Header.Set(fiber.HeaderAccept, "text/csv")
		c.As(f, sessionOf(f))
		return f.RestartRouting()
	})
}

// pathID returns the id that a path has. What is no id becomes one by which the API finds nothing.
func pathID(text string) uuid.UUID {
	id, _ := uuid.Parse(text)
	return id
}

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

// pageOf returns the page of a thing or a fact; empty: it has none.
func pageOf(what string, id any) string {
	if page := pagesOf[what]; page != "" {
		return Path + page + url.QueryEscape(fmt.Sprint(id))
	}
	return ""
}

// lookUp returns what a text names. kinds are those that are looked up; none: all.
func (c *console) lookUp(ctx context.Context, text string, kinds ...string) (all []finding, err error) {
	hits, err := c.Find(ctx, text, kinds...)
	for _, h := range hits {
		found := finding{Hit: h}
		if h.State != "explained" && h.State != "closed" { // the page of what waits has no such difference
			found.Page = pageOf(h.What, h.ID)
		}
		numbers := json.NewDecoder(bytes.NewReader(h.Facts))
		numbers.UseNumber()
		_ = numbers.Decode(&found.Known) // the database has made it
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
func (c *console) find(f *fiber.Ctx) error {
	text := strings.TrimSpace(f.Query("q"))
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	found, err := c.lookUp(ctx, text)
	if err != nil {
		return err
	}
	if len(found) > 0 && found[0].Page != "" && !slices.ContainsFunc(found, func(other finding) bool { return other.Page != found[0].Page }) {
		return f.Redirect(found[0].Page, http.StatusSeeOther)
	}
	return c.show(f, "find", view{Title: "Find", Data: fiber.Map{"Text": text, "Found": found, "Kinds": strings.Join(lookup.Kinds(), ", ")}})
}
