package stream

import (
	"bufio"
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// received is an event as a client sees it.
type received struct{ id, name, data string }

// parse reads a stream as the standard tells clients to. What follows the last empty line is not an event.
func parse(text string) (events []received, retry string) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(text, "\n")
	var id, name string
	var data strings.Builder
	for _, line := range lines[:len(lines)-1] {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data.Len() > 0 {
				events = append(events, received{id, name, strings.TrimSuffix(data.String(), "\n")})
			}
			name = ""
			data.Reset()
		case field == "id":
			id = value
		case field == "event":
			name = value
		case field == "data":
			data.WriteString(value + "\n")
		case field == "retry":
			retry = value
		}
	}
	return events, retry
}

func TestAnEventArrivesAsItWasSent(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		send func(w *writer) error
		raw  string
	}{
		"all fields":   {event(Event{ID: "7", Name: "campaign", Data: []byte(`{"a":1}`)}), "id: 7\nevent: campaign\ndata: {\"a\":1}\n\n"},
		"data alone":   {event(Event{Data: []byte("x")}), "data: x\n\n"},
		"lines":        {event(Event{Data: []byte("a\nb")}), "data: a\ndata: b\n\n"},
		"other breaks": {event(Event{Data: []byte("a\r\nb\rc")}), "data: a\ndata: b\ndata: c\n\n"},
		"like fields":  {event(Event{Data: []byte("a\n\nid: 9\n: no comment")}), "data: a\ndata: \ndata: id: 9\ndata: : no comment\n\n"},
		"spaces":       {event(Event{ID: " 7", Data: []byte(" x")}), "id:  7\ndata:  x\n\n"},
		"nothing":      {event(Event{ID: "7"}), "id: 7\ndata: \n\n"},
		"a heartbeat":  {(*writer).Ping, ": ping\n\n"},
		"a hint":       {func(w *writer) error { return w.Retry(2500 * time.Millisecond) }, "retry: 2500\n\n"},
	} {
		var sent bytes.Buffer
		w := newWriter(bufio.NewWriter(&sent))
		if err := errors.Join(row.send(w), row.send(w)); err != nil || sent.String() != row.raw+row.raw {
			t.Errorf("%s: sent %q, want %q twice, %v", name, sent.String(), row.raw, err)
		}
	}
}

func event(e Event) func(*writer) error { return func(w *writer) error { return w.Event(e) } }

func TestAnIDOrNameThatBreaksTheFormatIsRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []Event{{ID: "1\ndata: forged"}, {ID: "1\rx"}, {ID: "1\x00"}, {Name: "a\nid: 2"}, {Name: "a\r"}} {
		var sent bytes.Buffer
		w := newWriter(bufio.NewWriter(&sent))
		if err := w.Event(bad); !errors.Is(err, ErrField) {
			t.Errorf("%+v: %v", bad, err)
		}
		if err := w.Event(Event{Data: []byte("x")}); err != nil || sent.String() != "data: x\n\n" {
			t.Errorf("%+v left %q behind, %v", bad, sent.String(), err)
		}
	}
}
