package console

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/gofiber/fiber/v2"

	"triprize.example/client"
	"triprize/internal/domain/fault"
	"triprize/internal/key"
)

// mountBooks registers the pages of the books.
func (c *console) mountBooks(r fiber.Router) {
	c.page(r, "/books", "books", "Books", func(ctx context.Context, f *fiber.Ctx, api *client.Client) (any, error) {
		if month := f.Query("month"); month != "" {
			return nil, f.Redirect(Path + "/books/" + url.PathEscape(month) + "?zone=" + url.QueryEscape(f.Query("zone")))
		}
		return api.ListMonths(ctx)
	})
	c.page(r, "/books/:id", "month", "Month", func(ctx context.Context, f *fiber.Ctx, api *client.Client) (any, error) {
		return month(ctx, api, f.Params("id"), f.Query("zone"))
	})
	r.Get("/exports", func(f *fiber.Ctx) error { // the API itself answers
		defer f.Path(f.Path()) // a page that says why not leads here again
		query := f.Request().URI().QueryArgs()
		kind := f.Query("kind")
		query.Del("kind")
		f.Path("/v1/exports/" + url.PathEscape(kind))
		f.Request().Header.Set(fiber.HeaderAccept, "text/csv")
		return f.RestartRouting()
	})
	c.act(r, key.Operator, "/books/:id/close", closeMonth)
}

// month reads a month. Without a zone it must be one of books that have a zone: the first month that is closed fixes it.
func month(ctx context.Context, api *client.Client, name, zone string) (client.BookMonth, error) {
	known, err := api.ListMonths(ctx)
	if err == nil && len(known.Months) == 0 && zone == "" {
		err = fault.Invalid(fault.Field{Pointer: "/zone", Detail: "is required: no month is closed yet"})
	}
	if err != nil {
		return client.BookMonth{}, err
	}
	return api.GetMonth(ctx, name, client.GetMonthParams{Zone: zone})
}

// closeMonth is a form with the sums of a month. If they have changed since it was opened, it is refused.
func closeMonth(ctx context.Context, f *fiber.Ctx, api *client.Client) (a action, do run, err error) {
	m, err := month(ctx, api, f.Params("id"), f.Query("zone", f.FormValue("/zone")))
	if err == nil && m.State != client.BookMonthStateOpen {
		err = fault.New(fault.StateConflict, "%s is %s already", m.Month, m.State)
	}
	if err != nil {
		return a, nil, err
	}
	a = action{Path: f.Path(), Title: "Close the month " + m.Month, Danger: true, Typed: m.Month, Back: Path + "/books/" + url.PathEscape(m.Month),
		Text:   "It is closed for ever: what is recorded of it later is booked on the day it is recorded.",
		Facts:  []fact{{"Time zone", m.Zone}, {"Sales are earned at", string(m.EarnedAt)}},
		Fields: []field{reason, {Name: "/zone", Type: "hidden", Value: m.Zone}}}
	for _, s := range m.Statement.Methods {
		text := func(n int64) string { return moneyText(n, s.Currency) }
		a.Facts = append(a.Facts, fact{"Sold by " + s.Method, fmt.Sprintf("%s = %s kept + %s given back + %s disputed", text(s.Sold), text(s.Kept), text(s.GivenBack), text(s.Disputed))})
	}
	for _, b := range m.Statement.Balances {
		a.Facts = append(a.Facts, fact{b.Account, moneyText(b.Closing, b.Currency) + " at the end"})
	}
	if len(m.Open) > 0 {
		a.Facts = append(a.Facts, fact{"Open", fmt.Sprintf("%d: see the page of the month", len(m.Open))})
		a.Fields = append(a.Fields, field{Name: "/with_open", Label: "Carry what is open, by name", Type: "checkbox"})
	}
	seen, _ := json.Marshal([]any{m.Statement, m.Open})
	a.Seen = fmt.Sprintf("%x", sha256.Sum256(seen))
	return a, func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error {
		_, err := api.CloseMonth(ctx, typed.id, client.CloseMonth{Zone: typed.text("/zone"), WithOpen: typed.text("/with_open") != "", Reason: typed.text(reason.Name)}, options...)
		return err
	}, nil
}
