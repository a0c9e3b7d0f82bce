package console

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize.example/client"
	"triprize/internal/platform/readcache"
)

// fragment is the part of a page that moves. It is asked for again every two seconds. All of one right see the same of
// it, so it is read and rendered once for all.
type fragment struct {
	page  string
	id    uuid.UUID
	query string
	acts  bool // it leads to forms, too
}

// reader reads what a fragment shows: the data of the block "live" of its page.
type reader func(ctx context.Context, api *client.Client, id uuid.UUID, query url.Values) (any, error)

// rendered is a fragment as it is sent. Title is that of its page; empty: the usual one.
type rendered struct {
	title, tag string
	body       []byte
}

type transportKey struct{}

func (c *console) openFragments() {
	bounds := readcache.Settings{MaxAge: 1900 * time.Millisecond, Pause: time.Second, Timeout: c.Timeout + time.Second,
		MaxEntries: 1000, MaxBytes: 64 << 20}
	c.fragments = readcache.New(bounds, func(ctx context.Context, f fragment) (r rendered, err error) {
		transport, _ := ctx.Value(transportKey{}).(http.RoundTripper)
		query, _ := url.ParseQuery(f.query) // it was encoded
		data, err := c.readers[f.page](ctx, c.client(transport), f.id, query)
		if err != nil {
			return r, err
		}
		if named, ok := data.(interface{ title() string }); ok {
			r.title = named.title()
		}
		var b bytes.Buffer
		err = c.pages[f.acts][f.page].ExecuteTemplate(&b, "live", data)
		sum := sha256.Sum256(b.Bytes())
		r.tag, r.body = fmt.Sprintf(`W/"%x"`, sum[:12]), b.Bytes()
		return r, err
	}, func(r rendered) int { return len(r.body) })
}

// livePage registers a page whose content moves, at path and path/live. An id in the path is its parameter :id.
func (c *console) livePage(r fiber.Router, path, page, title string, read reader) {
	c.readers[page] = read
	r.Get(path+"/live", func(f *fiber.Ctx) error {
		found, _, err := c.fragmentOf(f, page)
		if err != nil {
			return err
		}
		f.Set(fiber.HeaderETag, found.tag)
		f.Set(fiber.HeaderCacheControl, "private, no-cache") // a browser keeps it, and asks whether it has changed
		if f.Get(fiber.HeaderIfNoneMatch) == found.tag {
			return f.SendStatus(http.StatusNotModified)
		}
		f.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
		return f.Send(found.body)
	})
	r.Get(path, func(f *fiber.Ctx) error {
		found, query, err := c.fragmentOf(f, page)
		if err != nil {
			return err
		}
		v := view{Title: cmp.Or(found.title, title), Query: query, Tag: found.tag, Live: template.HTML(found.body)} //nolint:gosec // a template has written it
		return c.show(f, page, v)
	})
}

// fragmentOf returns the fragment that a request asks for, at most two seconds old, and its query.
func (c *console) fragmentOf(f *fiber.Ctx, page string) (rendered, string, error) {
	asked, _ := url.ParseQuery(string(f.Request().URI().QueryString()))
	asked.Del("done") // it says what was done, as does job
	asked.Del("job")
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), transportKey{}, c.API(f, SessionOf(f))), c.Timeout+time.Second)
	defer cancel()
	found, err := c.fragments.Get(ctx, fragment{page, pathID(f.Params("id")), asked.Encode(), acts(f)}, nil)
	return found.Value, asked.Encode(), err
}

// pathID returns the id that a text is. What is no id becomes one by which the API finds nothing.
func pathID(text string) uuid.UUID {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != len(id.String()) {
		return uuid.Nil
	}
	return id
}
