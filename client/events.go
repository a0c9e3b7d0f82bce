package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Follow iterates over the state and counts of a campaign: as they are now, and
// after each change. A slow reader may miss some changes, but not the newest state.
// It ends when the campaign is completed, or cancelled and given back as far as Refunds
// say, or with an error: when ctx
// ends, the server refuses, or too many attempts to connect fail in a row (see
// RetryPolicy).
func (c *Client) Follow(ctx context.Context, campaign CampaignID) iter.Seq2[CampaignEvent, error] {
	return follow(ctx, c, streamCampaign(campaign, StreamCampaignParams{}), "campaign", CampaignEvent.last)
}

// FollowBoard is Follow with the Board in every event: first the whole board, with Since
// 0, then what has changed since the event before. It has no one's UserID.
func (c *Client) FollowBoard(ctx context.Context, campaign CampaignID) iter.Seq2[CampaignEvent, error] {
	return func(yield func(CampaignEvent, error) bool) {
		var seen int64
		for e, err := range follow(ctx, c, streamCampaign(campaign, StreamCampaignParams{Positions: true}), "campaign", CampaignEvent.last) {
			if err == nil && (e.Board == nil || e.Board.Since > seen) { // too much for an event, or something is missing
				board, err := c.ListPositions(ctx, campaign, ListPositionsParams{Since: seen, MinVersion: e.BoardVersion})
				if err != nil {
					yield(CampaignEvent{}, fmt.Errorf("client: following a board: %w", err))
					return
				}
				e.Board = &board
			}
			if err == nil {
				seen = e.Board.BoardVersion
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// last tells whether nothing follows. After a cancellation more may come, until all is
// given back: the server says when it is over.
func (e CampaignEvent) last() bool { return e.State == CampaignStateCompleted }

// FollowJob iterates over a job: as it is now, and after each change of its state and of
// what it awaits, waits for or has given back. It ends with the final state, or with an error, as Follow does.
func (c *Client) FollowJob(ctx context.Context, id JobID) iter.Seq2[Job, error] {
	return follow(ctx, c, streamJob(id), "job", Job.Final)
}

// FollowDraw iterates over what is public of a draw: as it is now, and after each change. The
// freeze record comes as soon as it is stored: note its hash before RoundDueAt. It ends when
// the campaign is completed or cancelled, or with an error, as Follow does.
func (c *Client) FollowDraw(ctx context.Context, campaign CampaignID) iter.Seq2[Draw, error] {
	return follow(ctx, c, streamDraw(campaign), "draw", func(d Draw) bool {
		return d.State == CampaignStateCompleted || d.State == CampaignStateCancelled
	})
}

const (
	maxEvent      = 1 << 20 // bytes of a line, and of an event
	pauseFirst    = 2 * time.Second
	pauseShortest = 100 * time.Millisecond
	pauseLongest  = 5 * time.Minute
)

// stream is the state of a reader of events, over all its connections.
type stream struct {
	seen  string        // id of the last event
	pause time.Duration // before it connects again
	heard bool          // there was an event on this connection
}

// errOver means that no more events will come, or that the caller wants no more.
var errOver = errors.New("the stream is over")

func follow[T any](ctx context.Context, c *Client, r request, name string, last func(T) bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		s := stream{pause: pauseFirst}
		waits := c.retry.backOff()
		take := func(event string, data []byte) error {
			var value T
			if event == "end" {
				return endOf(data)
			}
			if event != name {
				return nil // an event of a newer server
			}
			if err := json.Unmarshal(data, &value); err != nil {
				return &malformedError{err}
			}
			if !yield(value, nil) || last(value) {
				return errOver
			}
			return nil
		}
		for failures := 0; ; {
			err := c.listen(ctx, r, &s, take)
			if errors.Is(err, errOver) {
				return
			}
			if s.heard || err == nil {
				failures = 0
				waits.Reset()
			}
			pause := s.pause
			if err != nil {
				failures++
				pause = waits.NextBackOff()
				if refused, ok := asType[*Error](err); ok {
					pause = max(pause, refused.RetryAfter)
				}
			}
			ended := context.Cause(ctx)
			if ended == nil && (err == nil || failures < c.retry.Attempts && r.again(err)) {
				if ended = sleep(ctx, pause); ended == nil {
					continue
				}
			}
			if ended != nil {
				err = ended
			}
			var none T
			yield(none, fmt.Errorf("client: following %s: %w", r.path, err))
			return
		}
	}
}

// endOf reads the last event of a stream: is there more to come on another one?
func endOf(data []byte) error {
	var end StreamEnd
	if err := json.Unmarshal(data, &end); err != nil {
		return &malformedError{err}
	}
	if end.Reason == StreamEndReasonOver {
		return errOver
	}
	return nil
}

// listen connects once and reads events. It returns nil when the server has ended
// the stream between two events, which it does from time to time.
func (c *Client) listen(ctx context.Context, r request, s *stream, take func(name string, data []byte) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(4*c.timeout, cancel)
	defer silence.Stop()
	r.seen, s.heard = s.seen, false
	response, err := c.open(ctx, r, nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case response.StatusCode == http.StatusNoContent:
		return errOver
	case response.StatusCode != http.StatusOK:
		answer, err := c.read(response)
		if err != nil {
			return err
		}
		return problemOf(response, answer)
	case media != "text/event-stream":
		return &malformedError{fmt.Errorf("a stream of %q", media)}
	}
	return s.read(response.Body, take, func() { silence.Reset(4 * c.timeout) })
}

// read reads the events of one connection, in the text/event-stream format of the
// HTML standard, section 9.2, with lines that end in \n or \r\n. It ignores an event
// that is cut off.
func (s *stream) read(body io.Reader, take func(name string, data []byte) error, alive func()) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEvent)
	var data []byte
	name, id, filled := "", s.seen, false
	for lines.Scan() {
		alive()
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "" && filled:
			s.seen, s.heard = id, true
			if err := take(name, data); err != nil {
				return err
			}
			fallthrough
		case lines.Text() == "":
			s.seen, name, data, filled = id, "", nil, false
		case field == "event":
			name = value
		case field == "id" && !strings.Contains(value, "\x00"):
			id = value
		case field == "retry":
			if ms, err := strconv.ParseUint(value, 10, 31); err == nil {
				s.pause = min(max(time.Duration(ms)*time.Millisecond, pauseShortest), pauseLongest)
			}
		case field == "data" && filled:
			data = append(data, '\n')
			fallthrough
		case field == "data":
			data, filled = append(data, value...), true
			if len(data) > maxEvent {
				return &malformedError{fmt.Errorf("an event of more than %d bytes", maxEvent)}
			}
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return &malformedError{lines.Err()}
	}
	return lines.Err()
}
