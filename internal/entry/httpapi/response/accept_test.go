package response_test

import (
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"triprize/internal/entry/httpapi/response"
)

func TestTheMediaTypeIsTheOneThatAClientLikesBest(t *testing.T) {
	t.Parallel()
	const json, csv = "application/json", "text/csv"
	app := fiber.New()
	for _, c := range []struct {
		header []string
		want   string
	}{
		{nil, json}, {[]string{""}, json}, {[]string{"*/*"}, json}, {[]string{"image/png"}, json}, {[]string{"application/*"}, json},
		{[]string{"text/csv"}, csv}, {[]string{"Text/CSV"}, csv}, {[]string{"text/csv; charset=utf-8"}, csv}, {[]string{"text/csv;header=present;charset=UTF-8"}, csv},
		{[]string{" text/csv ; Q=0.5"}, csv}, {[]string{"text/*"}, csv}, {[]string{"TEXT/*;q=0.1"}, csv}, {[]string{"text/csv, */*"}, csv}, {[]string{"image/png, text/csv"}, csv},
		{[]string{"text/csv;q=0.5, application/json"}, json}, {[]string{"text/csv; charset=utf-8; q=0.5, application/json; q=0.4"}, csv}, {[]string{"text/csv, application/json"}, csv}, {[]string{"application/json, text/csv"}, json},
		{[]string{"text/csv;q=0"}, json}, {[]string{"text/csv;q=0.0, text/*"}, json}, {[]string{"application/json;q=0, */*;q=0.1"}, csv}, {[]string{"text/csv;q=0.1, */*"}, json}, {[]string{"*/*, application/json;q=0.1"}, csv},
		{[]string{"image/png", "text/csv"}, csv}, {[]string{"text/csv;q=x"}, csv}, {[]string{"text/csv;q=NaN"}, csv}, {[]string{"text/csvx"}, json}, {[]string{"text"}, json}, {[]string{",;,=;q"}, json},
	} {
		ctx := &fasthttp.RequestCtx{}
		for _, line := range c.header {
			ctx.Request.Header.Add("Accept", line)
		}
		f := app.AcquireCtx(ctx)
		if got := response.Accepted(f, json, csv); got != c.want {
			t.Errorf("Accept %q: %s, want %s", c.header, got, c.want)
		}
		app.ReleaseCtx(f)
	}
}
