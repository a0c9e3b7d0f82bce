package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"triprize.example/client"
	"triprize/internal/platform/readcache"
)

// fragment is a part of a page that is asked for again every two seconds. All operators see the same of it, so it is
// read and rendered once for all.
type fragment struct{ name, argument string }

type rendered struct {
	tag  string
	body []byte
}

// reader reads what a fragment shows: the data of the block with its name.
type reader func(ctx context.Context, api *client.Client, argument string) (data any, err error)

type fragments struct {
	readers map[string]reader
	cache   *readcache.Cache[fragment, rendered]
}

type transportKey struct{}

func (c *console) newFragments() *fragments {
	all := &fragments{readers: make(map[string]reader)}
	all.cache = readcache.New(readcache.Settings{MaxAge: 1900 * time.Millisecond, Pause: time.Second, Timeout: c.Timeout + time.Second, MaxEntries: 1000, MaxBytes: 64 << 20},
		func(ctx context.Context, f fragment) (r rendered, err error) {
			transport, _ := ctx.Value(transportKey{}).(http.RoundTripper)
			data, err := all.readers[f.name](ctx, c.client(transport), f.argument)
			if err != nil {
				return r, err
			}
			if raw, isRaw := data.([]byte); isRaw { // JSON for a script
				r.body = raw
			} else if r.body, err = c.write(f.name, "live", data); err != nil {
				return r, err
			}
			sum := sha256.Sum256(r.body)
			r.tag = `W/"` + hex.EncodeToString(sum[:12]) + `"`
			return r, nil
		}, func(r rendered) int { return len(r.body) })
	return all
}

// raw returns an answer of the API as it is, to the reader of a fragment.
func raw(ctx context.Context, path string) ([]byte, error) {
	transport, _ := ctx.Value(transportKey{}).(http.RoundTripper)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://console"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("console: %s: %w", path, err)
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	body := make([]byte, answer.ContentLength) // a board may have 40 MiB: it is not grown
	if _, err = io.ReadFull(answer.Body, body); err == nil && answer.StatusCode != http.StatusOK {
		refused := &client.Error{Problem: client.Problem{Status: answer.StatusCode}}
		_ = json.Unmarshal(body, &refused.Problem)
		err = refused
	}
	return body, err
}

// argumentOf returns what a fragment depends on: a parameter of the path, and parameters of the query as a query.
func argumentOf(f *fiber.Ctx, names string) (parameter, query string) {
	name, rest, _ := strings.Cut(names, "?")
	values := make(url.Values)
	for one := range strings.SplitSeq(rest, "&") {
		if value := f.Query(one); one != "" && value != "" {
			values.Set(one, value)
		}
	}
	if len(values) > 0 {
		query = "?" + values.Encode()
	}
	return f.Params(name), query
}

// live registers a fragment: the block "live" of the page with its name. argument names what it depends on: a
// parameter of the path, and of the query ("id?since&limit"); empty: nothing.
func (c *console) live(r fiber.Router, path, name, argument string, read reader) {
	c.fragments.readers[name] = read
	r.Get(path, func(f *fiber.Ctx) error {
		parameter, query := argumentOf(f, argument)
		found, err := c.fragment(f, name, parameter+query)
		if err != nil {
			return err
		}
		f.Set(fiber.HeaderETag, found.tag)
		f.Set(fiber.HeaderCacheControl, "private, no-cache") // a browser keeps it, and asks whether it has changed
		if f.Get(fiber.HeaderIfNoneMatch) == found.tag {
			return f.SendStatus(http.StatusNotModified)
		}
		f.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
		if len(found.body) > 0 && (found.body[0] == '{' || found.body[0] == '[') {
			f.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSONCharsetUTF8)
		}
		return f.Send(found.body)
	})
}

// fragment returns a fragment that is at most two seconds old.
func (c *console) fragment(f *fiber.Ctx, name, argument string) (rendered, error) {
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), transportKey{}, c.API(f, sessionOf(f))), c.Timeout+time.Second)
	defer cancel()
	found, err := c.fragments.cache.Get(ctx, fragment{name, argument}, nil)
	return found.Value, err
}

// livePage registers a page with its fragment, at path and path/live. head reads what does not move; nil: nothing.
func (c *console) livePage(r fiber.Router, path, name, argument, title string, read reader, head func(f *fiber.Ctx, v *view) error) {
	c.live(r, path+"/live", name, argument, read)
	r.Get(path, func(f *fiber.Ctx) error {
		parameter, query := argumentOf(f, argument)
		found, err := c.fragment(f, name, parameter+query)
		if err != nil {
			return err
		}
		v := view{Title: title, Query: query, Live: template.HTML(found.body)} //nolint:gosec // a template has written it
		if head != nil {
			if err := head(f, &v); err != nil {
				return err
			}
		}
		return c.show(f, name, v)
	})
}
