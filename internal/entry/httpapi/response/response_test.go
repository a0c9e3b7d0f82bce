package response

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
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
		if got := Accepted(f, json, csv); got != c.want {
			t.Errorf("Accept %q: %s, want %s", c.header, got, c.want)
		}
		app.ReleaseCtx(f)
	}
}

// For every header: the wait is none, or whole seconds, or the longest.
func FuzzAPreferredWaitIsBounded(f *testing.F) {
	for _, text := range []string{"", "wait", "wait=", "wait=1", "WAIT=30", `wait="5"`, "wait=-1", "wait=1e9", "wait=99999999999999999999", "respond-async, wait=2", "wait=0, wait=3", ",,=,", "wait = 4 ; a=b", "wait=4;until=final", `wait=4 ; UNTIL="Final"`, "until=final; wait=3", "\xff=1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const longest = 30 * time.Second
		w := PreferOf(text, longest)
		if wait := w.Longest; wait < 0 || wait > longest || wait%time.Second != 0 || wait > 0 && !strings.Contains(strings.ToLower(text), "wait") {
			t.Errorf("%q asks for %s", text, wait)
		}
		if w.UntilFinal && (w.Longest == 0 || !strings.Contains(strings.ToLower(text), "final")) {
			t.Errorf("%q asks for the end", text)
		}
	})
}

// For every header: what a client already has is told from what it
// has not, and an answer that it has is never sent as unchanged to another tag.
func FuzzOnlyItsOwnTagMakesAnAnswerUnchanged(f *testing.F) {
	answer, err := Tag(map[string]int{"a": 1})
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{"", "*", answer.Tag, strings.TrimPrefix(answer.Tag, "W/"), `"a", ` + answer.Tag, answer.Tag + "x", `W/W/` + answer.Tag, `"`, ",,,", `"*"`, "* ", "\xff"} {
		f.Add(text)
	}
	opaque := strings.Trim(strings.TrimPrefix(answer.Tag, "W/"), `"`)
	f.Fuzz(func(t *testing.T, text string) {
		got := answer.Matched(&text)
		if got.Unchanged && !strings.Contains(text, opaque) && !strings.Contains(text, "*") {
			t.Errorf("%q is taken for %s", text, answer.Tag)
		}
		with := text + ", " + answer.Tag
		if !answer.Matched(&with).Unchanged {
			t.Errorf("%q does not match %s", with, answer.Tag)
		}
		if answer.Matched(nil).Unchanged || got.Tag != answer.Tag || !bytes.Equal(got.Body, answer.Body) {
			t.Errorf("%q changes the answer", text)
		}
	})
}

func newSending(most int) *Sending {
	s := NewSending(prometheus.NewRegistry())
	s.most = most
	return s
}

func of(body []byte, own int) Long {
	return Long{Size: len(body), Shared: body, Own: own, Pieces: func() []byte {
		piece := body
		body = nil
		return piece
	}}
}

func TestSharedBytesOfAnswersCountOnce(t *testing.T) {
	t.Parallel()
	s, body := newSending(1000), make([]byte, 600)
	answers := make([]*longAnswer, 100)
	for i := range answers {
		answers[i] = s.begin(of(body, 1))
	}
	if s.bytes != 700 || s.answers.Len() != 100 {
		t.Errorf("%d bytes, %d answers", s.bytes, s.answers.Len())
	}
	for _, a := range answers {
		if sent, err := io.Copy(io.Discard, a); sent != 600 || err != nil {
			t.Error(sent, err)
		}
		_ = a.Close()
		_ = a.Close() // counts once
	}
	if s.bytes != 0 || s.answers.Len() != 0 || len(s.shared) != 0 {
		t.Errorf("afterwards %d bytes, %d answers, %d shared", s.bytes, s.answers.Len(), len(s.shared))
	}
}

func TestWhatIsTooMuchCutsTheAnswersThatBeganFirst(t *testing.T) {
	t.Parallel()
	s := newSending(1000)
	first, second, third := s.begin(of(make([]byte, 600), 0)), s.begin(of(make([]byte, 300), 0)), s.begin(of(make([]byte, 500), 0))
	if _, err := io.Copy(io.Discard, first); !errors.Is(err, errCut) {
		t.Errorf("the first one: %v", err)
	}
	for _, a := range []*longAnswer{second, third} {
		if _, err := io.Copy(io.Discard, a); err != nil {
			t.Errorf("a later one: %v", err)
		}
	}
	alone := s.begin(of(make([]byte, 5000), 0))
	if sent, err := io.Copy(io.Discard, alone); sent != 5000 || err != nil {
		t.Errorf("one that is longer than the bound: %d, %v", sent, err)
	}
}

// stuck is a connection whose client does not read.
type stuck struct{ reached, goOn chan struct{} }

func (c stuck) Write(p []byte) (int, error) {
	c.reached <- struct{}{}
	<-c.goOn
	return len(p), nil
}

// A connection that waits for its client keeps a chunk, and not the answer.
func TestACutAnswerIsFreeWhileItsClientDoesNotRead(t *testing.T) {
	t.Parallel()
	s := newSending(1000)
	c := stuck{make(chan struct{}), make(chan struct{})}
	kept, slow := begun(s)
	done := make(chan error)
	go func() { _, err := io.Copy(c, slow); done <- err }()
	<-c.reached
	s.begin(of(make([]byte, 900), 0))
	runtime.GC()
	if kept.Value() != nil {
		t.Error("the cut answer is still in memory")
	}
	c.goOn <- struct{}{}
	go func() { // what was copied before the cut
		for range c.reached {
			c.goOn <- struct{}{}
		}
	}()
	if err := <-done; !errors.Is(err, errCut) {
		t.Errorf("the slow one: %v", err)
	}
	close(c.reached)
}

func begun(s *Sending) (weak.Pointer[[1 << 20]byte], *longAnswer) {
	body := new([1 << 20]byte)
	return weak.Make(body), s.begin(of(body[:], 0))
}

func TestALongAnswerIsTheSameInPieces(t *testing.T) {
	t.Parallel()
	s, want := newSending(1<<20), bytes.Repeat([]byte("0123456789"), 10_000)
	rest := want
	var got bytes.Buffer
	_, err := io.Copy(&got, s.begin(Long{Size: len(want), Pieces: func() []byte {
		if len(rest) == 0 {
			return nil
		}
		n := min(len(rest), 7)
		piece := rest[:n]
		rest = rest[n:]
		return piece
	}}))
	if err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes, %v", got.Len(), err)
	}
}
