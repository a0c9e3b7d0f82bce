package docs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/time/rate"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/response"
)

// File is a file that stays the same while the process runs. All answers share its
// bytes, so that many clients that read slowly cost no more than one.
type File struct {
	contentType string
	policy      string // Content-Security-Policy; empty: none
	plain       func() []byte
	zipped      func() []byte
	tagged      response.Tagged
	budget      *rate.Limiter // of bytes; nil: none
}

// publicBytes is how many bytes a second of the files for people a process sends, and
// twice as many at once. Anybody may ask for these, and browsers keep them; so a
// crowd that wants nothing else takes no time from those who buy.
const publicBytes = 32 << 20

var errBusyFiles = fault.New(fault.RateLimited, "too many ask for the pages of this server; try again in a moment")

var gzipMagic = []byte("\x1f\x8b")

// NewFile returns the asset of some bytes, or of a gzip file. The other form is made
// when somebody first wants it.
func NewFile(contentType, policy string, content []byte) *File {
	digest := sha256.Sum256(content)
	a := &File{contentType: contentType, policy: policy, tagged: response.Tagged{Tag: `W/"` + hex.EncodeToString(digest[:12]) + `"`}} // weak: it stands for both forms
	here := func() []byte { return content }
	if bytes.HasPrefix(content, gzipMagic) {
		a.zipped, a.plain = here, sync.OnceValue(func() []byte { return unzip(content) })
	} else {
		a.plain, a.zipped = here, sync.OnceValue(func() []byte { return zip(content) })
	}
	return a
}

func zip(content []byte) []byte {
	var zipped bytes.Buffer
	archive := gzip.NewWriter(&zipped)
	_, _ = archive.Write(content) // to memory it cannot fail
	_ = archive.Close()
	return bytes.Clone(zipped.Bytes())
}

// unzip returns what is in a file that is compiled in; a broken one is a defect of
// the build, which a test would show.
func unzip(content []byte) []byte {
	archive, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil
	}
	plain, _ := io.ReadAll(archive)
	return bytes.Clone(plain)
}

// Send answers with the file, or with 304.
func (a *File) Send(c *fiber.Ctx) error {
	c.Set(fiber.HeaderETag, a.tagged.Tag)
	c.Set(fiber.HeaderCacheControl, "no-cache") // kept, and asked for each time: another release has other files
	c.Vary(fiber.HeaderAcceptEncoding)
	if a.policy != "" {
		c.Set(fiber.HeaderContentSecurityPolicy, a.policy)
	}
	if known := c.Get(fiber.HeaderIfNoneMatch); known != "" && a.tagged.Matched(&known).Unchanged {
		c.Status(fiber.StatusNotModified)
		return nil
	}
	c.Set(fiber.HeaderContentType, a.contentType)
	content := a.plain
	if zipped := c.Get(fiber.HeaderAcceptEncoding); strings.Contains(zipped, "gzip") && c.AcceptsEncodings("gzip") != "" {
		content = a.zipped
	}
	body := content()
	if a.budget != nil && !a.budget.AllowN(time.Now(), len(body)) {
		c.Response().Header.Del(fiber.HeaderETag)
		return errBusyFiles
	}
	if len(body) > 0 && bytes.HasPrefix(body, gzipMagic) {
		c.Set(fiber.HeaderContentEncoding, "gzip")
	}
	return c.Send(body)
}
