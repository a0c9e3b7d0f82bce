package stream

import (
	"bufio"
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"
)

// ContentType is the media type of a stream.
const ContentType = "text/event-stream"

// Event is one message to the client.
type Event struct {
	ID   string // the client sends it as Last-Event-ID when it connects again; empty: the id before stays
	Name string // empty: "message"
	Data []byte // text in UTF-8; its line breaks all arrive as \n
	Last bool   // the stream ends after it; not sent
}

// ErrField means that an id or a name has a line break or a NUL and cannot be sent.
var ErrField = errors.New("stream: the id or the name of an event has a line break or a NUL")

// forbidden are the characters that end a line, and NUL, which makes clients
// ignore an id.
const forbidden = "\r\n\x00"

// writer writes events. Each method flushes. An error means that the client is
// gone, unless it is ErrField: then nothing was written.
type writer struct {
	out   *bufio.Writer
	frame []byte // of the event before, reused
}

// newWriter returns a writer to out.
func newWriter(out *bufio.Writer) *writer { return &writer{out: out} }

// lineBreaks replaces the three line breaks of the format by one of them.
var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// Event sends one event. Empty data is sent too, so that clients see the event.
func (w *writer) Event(e Event) error {
	if strings.ContainsAny(e.ID, forbidden) || strings.ContainsAny(e.Name, forbidden) {
		return ErrField
	}
	w.frame = w.frame[:0]
	if e.ID != "" {
		w.line("id", e.ID)
	}
	if e.Name != "" {
		w.line("event", e.Name)
	}
	if !bytes.ContainsAny(e.Data, "\r\n") {
		return w.sendLine(e.Data)
	}
	for line := range strings.SplitSeq(lineBreaks.Replace(string(e.Data)), "\n") {
		w.line("data", line)
	}
	return w.send()
}

// sendLine ends the frame with data of one line. It does not copy the data, which can be
// long and the same for thousands of clients.
func (w *writer) sendLine(data []byte) error {
	w.frame = append(w.frame, "data: "...)
	for _, part := range [][]byte{w.frame, data, []byte("\n\n")} {
		if _, err := w.out.Write(part); err != nil {
			return err
		}
	}
	return w.out.Flush()
}

// Ping sends a comment, which clients ignore.
func (w *writer) Ping() error {
	w.frame = append(w.frame[:0], ": ping\n"...)
	return w.send()
}

// Retry tells the client how long to wait before it connects again.
func (w *writer) Retry(after time.Duration) error {
	w.frame = w.frame[:0]
	w.line("retry", strconv.FormatInt(after.Milliseconds(), 10))
	return w.send()
}

func (w *writer) line(field, value string) {
	w.frame = append(w.frame, field...)
	w.frame = append(w.frame, ": "...)
	w.frame = append(w.frame, value...)
	w.frame = append(w.frame, '\n')
}

// send ends the frame with an empty line.
func (w *writer) send() error {
	w.frame = append(w.frame, '\n')
	if _, err := w.out.Write(w.frame); err != nil {
		return err
	}
	return w.out.Flush()
}
