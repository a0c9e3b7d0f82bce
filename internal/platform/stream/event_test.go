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

// parse reads a stream as the standard tells clients to, and returns how often
// it had a comment. What follows the last empty line is not an event.
func parse(text string) (events []received, comments int, retry string) {
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
		case field == "":
			comments++
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
	return events, comments, retry
}

func TestAnEventArrivesAsItWasSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event Event
		raw   string
		want  received
	}{
		"all fields":   {Event{ID: "7", Name: "campaign", Data: []byte(`{"a":1}`)}, "id: 7\nevent: campaign\ndata: {\"a\":1}\n\n", received{"7", "campaign", `{"a":1}`}},
		"data alone":   {Event{Data: []byte("x")}, "data: x\n\n", received{"", "", "x"}},
		"lines":        {Event{Data: []byte("a\nb")}, "data: a\ndata: b\n\n", received{"", "", "a\nb"}},
		"other breaks": {Event{Data: []byte("a\r\nb\rc")}, "data: a\ndata: b\ndata: c\n\n", received{"", "", "a\nb\nc"}},
		"like fields":  {Event{Data: []byte("a\n\nid: 9\n: no comment")}, "data: a\ndata: \ndata: id: 9\ndata: : no comment\n\n", received{"", "", "a\n\nid: 9\n: no comment"}},
		"spaces":       {Event{ID: " 7", Data: []byte(" x")}, "id:  7\ndata:  x\n\n", received{" 7", "", " x"}},
		"nothing":      {Event{ID: "7"}, "id: 7\ndata: \n\n", received{"7", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent bytes.Buffer
			if err := newWriter(bufio.NewWriter(&sent)).Event(c.event); err != nil {
				t.Fatal(err)
			}
			if sent.String() != c.raw {
				t.Errorf("sent %q, want %q", sent.String(), c.raw)
			}
			if got, _, _ := parse(sent.String()); len(got) != 1 || got[0] != c.want {
				t.Errorf("received %q, want %q", got, c.want)
			}
		})
	}
}

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

func TestHeartbeatsAndHintsAreNoEvents(t *testing.T) {
	t.Parallel()
	var sent bytes.Buffer
	w := newWriter(bufio.NewWriter(&sent))
	if err := errors.Join(w.Retry(2500*time.Millisecond), w.Ping(), w.Event(Event{ID: "1", Data: []byte("x")}), w.Ping()); err != nil {
		t.Fatal(err)
	}
	if want := "retry: 2500\n\n: ping\n\nid: 1\ndata: x\n\n: ping\n\n"; sent.String() != want {
		t.Errorf("sent %q, want %q", sent.String(), want)
	}
	if events, comments, retry := parse(sent.String()); len(events) != 1 || comments != 2 || retry != "2500" {
		t.Errorf("received %q, %d comments, retry %s", events, comments, retry)
	}
}
