package response

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"testing"
	"weak"

	"github.com/prometheus/client_golang/prometheus"
)

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
