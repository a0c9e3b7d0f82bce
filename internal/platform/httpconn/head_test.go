package httpconn

import (
	"strings"
	"testing"
)

// scanned sends text in pieces of a size through a scanner, request by request, and
// returns how many whole requests there were, and why the next was refused.
func scanned(text string, size, limit int) (requests int, reason Reason) {
	s := scanner{limit: limit}
	for len(text) > 0 {
		taken, reason := s.scan([]byte(text[:min(size, len(text))]))
		if reason != fine {
			return requests, reason
		}
		text = text[taken:]
		if s.ended() {
			requests++
			s.reset()
		}
	}
	return requests, fine
}

const inner = "GET /inner HTTP/1.1\r\nHost: a\r\n\r\n"

func TestARequestIsAsTheGrammarSaysOrRefused(t *testing.T) {
	t.Parallel()
	post := "POST /a HTTP/1.1\r\nHost: a\r\n"
	for name, c := range map[string]struct {
		text     string
		requests int
		want     Reason
	}{
		"two requests":                 {inner + inner, 2, fine},
		"an empty line before":         {"\r\n" + inner, 1, fine},
		"a body":                       {post + "Content-Length: 5\r\n\r\n12345" + inner, 2, fine},
		"no body":                      {post + "content-length:0\r\n\r\n" + inner, 2, fine},
		"blanks around a length":       {post + "CONTENT-LENGTH: \t5 \t\r\n\r\n12345" + inner, 2, fine},
		"like a length":                {post + "Content-Lengths: 5\r\nX-Content-Length: 7\r\nContent-Lengt: x\r\n\r\n" + inner, 2, fine},
		"HTTP/1.0":                     {"GET / HTTP/1.0\r\n\r\n", 1, fine},
		"an odd method":                {"M-SEARCH * HTTP/1.1\r\n\r\n", 1, fine},
		"bytes beyond ASCII":           {"GET /\xc3\xa4 HTTP/1.1\r\nX: \xff\r\n\r\n", 1, fine},
		"two empty lines before":       {"\r\n\r\n" + inner, 0, BadRequestLine},
		"no version":                   {"GET /\r\n\r\n", 0, BadRequestLine},
		"no version, bare LF":          {"GET /\n\n", 0, BadRequestLine},
		"a bare LF":                    {"GET / HTTP/1.1\nHost: a\r\n\r\n", 0, BadRequestLine},
		"a bare CR":                    {"GET / HTTP/1.1\rHost: a\r\n\r\n", 0, BadRequestLine},
		"another version":              {"GET / HTTP/1.2\r\n\r\n", 0, BadRequestLine},
		"HTTP/2":                       {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, BadRequestLine},
		"another byte than CR":         {"GET / HTTP/1.1x\nHost: a\r\n\r\n", 0, BadRequestLine},
		"a longer version":             {"GET / HTTP/1.11\r\n\r\n", 0, BadRequestLine},
		"a small version":              {"GET / http/1.1\r\n\r\n", 0, BadRequestLine},
		"a blank after the version":    {"GET / HTTP/1.1 \r\n\r\n", 0, BadRequestLine},
		"no target":                    {"GET  HTTP/1.1\r\n\r\n", 0, BadRequestLine},
		"two blanks":                   {"GET  / HTTP/1.1\r\n\r\n", 0, BadRequestLine},
		"a blank in the target":        {"GET /a b HTTP/1.1\r\n\r\n", 0, BadRequestLine},
		"a tab":                        {"GET\t/ HTTP/1.1\r\n\r\n", 0, BadRequestLine},
		"a NUL in the target":          {"GET /\x00 HTTP/1.1\r\n\r\n", 0, BadRequestLine},
		"no method":                    {" / HTTP/1.1\r\n\r\n", 0, BadRequestLine},
		"TLS":                          {"\x16\x03\x01\x02\x00", 0, BadRequestLine},
		"a colon in the method":        {"Host: a\r\n\r\n", 0, BadRequestLine},
		"folded":                       {post + "X: a\r\n b\r\n\r\n", 0, BadHeader},
		"folded at once":               {post + "\tX: a\r\n\r\n", 0, BadHeader},
		"a blank before the colon":     {post + "Content-Length : 5\r\n\r\n", 0, BadHeader},
		"no colon":                     {post + "X\r\n\r\n", 0, BadHeader},
		"no name":                      {post + ": x\r\n\r\n", 0, BadHeader},
		"a bare LF in the head":        {post + "X: a\n\r\n", 0, BadHeader},
		"a bare LF at its end":         {post + "X: a\r\n\n", 0, BadHeader},
		"a bare CR in the head":        {post + "X: a\rY: b\r\n\r\n", 0, BadHeader},
		"CR before something":          {post + "X: a\r\n\rGET", 0, BadHeader},
		"a NUL":                        {post + "X: \x00\r\n\r\n", 0, BadHeader},
		"a DEL":                        {post + "X: \x7f\r\n\r\n", 0, BadHeader},
		"a NUL in a name":              {post + "X\x00: a\r\n\r\n", 0, BadHeader},
		"two lengths":                  {post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 0, BadLength},
		"one length twice":             {post + "Content-Length: 5\r\ncontent-length: 5\r\n\r\n", 0, BadLength},
		"a list":                       {post + "Content-Length: 5, 5\r\n\r\n", 0, BadLength},
		"two numbers":                  {post + "Content-Length: 5 5\r\n\r\n", 0, BadLength},
		"a sign":                       {post + "Content-Length: +5\r\n\r\n", 0, BadLength},
		"hex":                          {post + "Content-Length: 0x5\r\n\r\n", 0, BadLength},
		"no number":                    {post + "Content-Length: \r\n\r\n", 0, BadLength},
		"a number beyond all":          {post + "Content-Length: 99999999999999999999999\r\n\r\n", 0, BadLength},
		"chunks":                       {post + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, LengthRequired},
		"another encoding":             {post + "transfer-encoding: gzip\r\n\r\n", 0, LengthRequired},
		"no encoding":                  {post + "Transfer-Encoding:\r\n\r\n", 0, LengthRequired},
		"an encoding and a length":     {post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 0, BadLength},
		"a length and an encoding":     {post + "Content-Length: 0\r\nTransfer-Encoding: identity\r\n\r\n", 0, BadLength},
		"a blank in a name":            {post + "Transfer Encoding: chunked\r\n\r\n", 0, BadHeader},
		"two hosts":                    {post + "HOST: b\r\n\r\n", 0, Repeated},
		"two credentials":              {post + "Authorization: a\r\nauthorization: b\r\n\r\n", 0, Repeated},
		"two types":                    {post + "Content-Type: a\r\nContent-Type: b\r\n\r\n", 0, Repeated},
		"one key twice":                {post + "Idempotency-Key: k\r\nidempotency-key: k\r\n\r\n", 0, Repeated},
		"a host in each request":       {inner + post + "\r\n" + inner, 3, fine},
		"another field twice":          {post + "X: a\r\nX: b\r\n\r\n", 1, fine},
		"the second is refused":        {inner + "GET /\r\n\r\n", 1, BadRequestLine},
		"a head as large as it may be": {"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 400-23) + "\r\n\r\n", 1, fine},
		"one byte more":                {"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 400-22) + "\r\n\r\n", 0, TooLarge},
	} {
		for _, size := range []int{1, 2, 3, 7, 1 << 20} { // how the bytes come must not matter
			if requests, reason := scanned(c.text, size, 400); requests != c.requests || reason != c.want {
				t.Errorf("%s, by %d bytes: %d requests, %d; want %d, %d", name, size, requests, reason, c.requests, c.want)
			}
		}
	}
}

func FuzzNothingMakesTheScannerPanicOrTakeTooMuch(f *testing.F) {
	f.Add("POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"+inner, 3)
	f.Fuzz(func(t *testing.T, text string, size int) {
		whole, reason := scanned(text, len(text)+1, 200)
		if pieces, other := scanned(text, 1+max(size, -size)%9, 200); size != -size && (pieces != whole || other != reason) {
			t.Errorf("in pieces: %d, %d; at once: %d, %d", pieces, other, whole, reason)
		}
	})
}
