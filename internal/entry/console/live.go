package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"html/template"
	"net/http"
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

type clientKey struct{}

func (c *console) newFragments() *fragments {
	all := &fragments{readers: make(map[string]reader)}
	all.cache = readcache.New(readcache.Settings{MaxAge: 1900 * time.Millisecond, Pause: time.Second, Timeout: c.Timeout + time.Second, MaxEntries: 1000, MaxBytes: 64 << 20},
		func(ctx context.Context, f fragment) (r rendered, err error) {
			api, _ := ctx.Value(clientKey{}).(*client.Client)
			data, err := all.readers[f.name](ctx, api, f.argument)
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

// live registers a fragment: the block "live" of the page with its name. argument names the parameter of the path that
// it depends on; empty: none.
func (c *console) live(r fiber.Router, path, name, argument string, read reader) {
	c.fragments.readers[name] = read
	r.Get(path, func(f *fiber.Ctx) error {
		found, err := c.fragment(f, name, f.Params(argument))
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
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), clientKey{}, c.api(f)), c.Timeout+time.Second)
	defer cancel()
	found, err := c.fragments.cache.Get(ctx, fragment{name, argument}, nil)
	return found.Value, err
}

// livePage registers a page with its fragment, at path and path/live. head reads what does not move; nil: nothing.
func (c *console) livePage(r fiber.Router, path, name, argument, title string, read reader, head func(f *fiber.Ctx, v *view) error) {
	c.live(r, path+"/live", name, argument, read)
	r.Get(path, func(f *fiber.Ctx) error {
		found, err := c.fragment(f, name, f.Params(argument))
		if err != nil {
			return err
		}
		v := view{Title: title, Live: template.HTML(found.body)} //nolint:gosec // a template has written it
		if head != nil {
			if err := head(f, &v); err != nil {
				return err
			}
		}
		return c.show(f, name, v)
	})
}
