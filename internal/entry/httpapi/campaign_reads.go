package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/drawing/progress"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/positions"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/inventory"
	"triprize/internal/lifecycle"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/readcache"
	"triprize/internal/platform/stream"
)

// boardFollower makes the events of one stream that brings positions. The board is read,
// and an event encoded, once for all streams of the process that have seen the same.
type boardFollower struct {
	server *server
	seen   int64 // the version of the board that the client has; 0: none
}

// event adds to the progress what has changed on the board since the event before. If
// that is too much, or the board cannot be read, the client has to read it, as of the
// progress at least: the next event goes on from there.
func (f *boardFollower) event(now progress.Progress) stream.Event {
	e := stream.Event{Name: "campaign", Last: now.Over()}
	ctx, cancel := f.server.context()
	defer cancel()
	isWhole := false
	current, err := f.server.board(ctx, boardCopy{id: now.CampaignID}, max(now.Board, f.seen)) // what it has may be newer: from another process
	if err == nil {
		e.Data, isWhole, err = current.Event(now.Version, f.seen, func(document []byte) []byte { return boardEvent(now, document) })
	}
	if err != nil {
		f.server.logger.Warn("an event is sent without its positions", "campaign", now.CampaignID, "error", err)
		e.Data = boardEvent(now, nil)
	}
	if f.seen = now.Board; isWhole {
		f.seen = current.Version
	}
	e.ID = now.Version + "." + strconv.FormatInt(f.seen, 10)
	return e
}

// boardEvent is the data of an event with the document of a board; nil: null.
func boardEvent(now progress.Progress, document []byte) []byte {
	data, _ := json.Marshal(struct { // cannot fail: the document is JSON
		contract.CampaignEvent
		Board json.RawMessage `json:"board"`
	}{resource.CampaignEvent(now), document})
	return data
}

// seenOf returns what a client has seen by the id of an event: the version of the
// progress and, if the event brought positions, that of the board.
func seenOf(id string) (progress string, board int64) {
	progress, version, _ := strings.Cut(id, ".")
	board, err := strconv.ParseInt(version, 10, 64)
	if err != nil { // it is not one of ours
		board = 0
	}
	return progress, board
}

func (s *server) StreamCampaign(ctx context.Context, r operations.StreamCampaignRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	found, err := campaign.Get(ctx, s.db, r.Campaign)
	if err != nil {
		return nil, err
	}
	seen, board := seenOf(response.ValueOf(r.Params.LastEventID))
	list, err := progress.Of(ctx, s.db, found)
	if err != nil {
		return nil, err
	}
	if now := list[0]; now.Over() && now.Version == seen {
		return response.Stream{Over: true}, nil
	}
	event := campaignEvent
	if response.ValueOf(r.Params.Positions) {
		event = (&boardFollower{server: s, seen: board}).event
	}
	subscription := s.changes.Subscribe(r.Campaign, seen)
	return s.openStream(who, subscription.Stop, func(ctx context.Context, w *bufio.Writer) {
		_ = stream.Relay(ctx, w, s.settings.Streams, subscription.Progress(), event) // the client is gone
	})
}

func campaignEvent(now progress.Progress) stream.Event {
	data, _ := json.Marshal(resource.CampaignEvent(now)) // cannot fail
	return stream.Event{ID: now.Version, Name: "campaign", Data: data, Last: now.Over()}
}

// campaignCopy and listCopy are what is kept a copy of. Apps have copies of their own: they
// see more than the public.
type (
	campaignCopy struct {
		id     uuid.UUID
		reader resource.Role
	}
	listCopy struct {
		campaign.Page
		reader resource.Role
	}
	boardCopy struct {
		id         uuid.UUID
		withOwners bool // for the pages of operators
	}
)

// readerOf returns the role whose copies a caller shares.
func readerOf(who resource.Role) resource.Role {
	if who == resource.App {
		return resource.App
	}
	return resource.Anonymous
}

const (
	campaignAge    = 500 * time.Millisecond
	positionsAge   = time.Second
	positionsBytes = 192 << 20 // of the copies of all boards; the largest needs about half, with owners most of it
)

// openCaches keeps what crowds read, for everybody but operators, who see at once what they have changed
// at any process (but for the boards of their pages, which poll): encoded campaigns, first pages of their list, what anonymous callers read of
// draws, and boards (the positions of a campaign): one read per campaign and second, however many clients
// poll, and one more for each version that somebody knows of.
func (s *server) openCaches() {
	bounds := readcache.Settings{MaxAge: campaignAge, Pause: 100 * time.Millisecond, Timeout: s.settings.API.RequestTimeout, MaxEntries: 10_000, MaxBytes: 64 << 20}
	size := func(a response.Tagged) int { return len(a.Body) }
	s.campaigns = readcache.New(bounds, func(ctx context.Context, of campaignCopy) (response.Tagged, error) {
		return readCampaign(ctx, s.db, of.id, of.reader)
	}, size)
	s.lists = readcache.New(bounds, func(ctx context.Context, of listCopy) (response.Tagged, error) {
		return readCampaigns(ctx, s.db, of.Page, of.reader)
	}, size)
	s.draws = readcache.New(bounds, func(ctx context.Context, id uuid.UUID) (drawAnswer, error) {
		return readDraw(ctx, s.db, id, call.Caller{Role: resource.Anonymous})
	}, func(a drawAnswer) int { return len(a.body) })
	bounds.MaxAge, bounds.MaxBytes = positionsAge, positionsBytes
	read := func(ctx context.Context, of boardCopy) (*positions.Board, error) { return readBoard(ctx, s.db, of) }
	s.boards = readcache.New(bounds, read, (*positions.Board).Bytes)
	s.ownerBoards = readcache.New(bounds, read, (*positions.Board).Bytes) // operators who look take no room from a crowd
}

// isFresh reports whether a copy is not from before a stream of this process knew of the last change of
// a campaign.
func (s *server) isFresh(id uuid.UUID, readAt time.Time) bool {
	return readAt.After(s.changes.ChangedAt(id))
}

// board returns a board that is a second old at most, and fresh. It is as new as version, unless the
// campaign has not reached that.
func (s *server) board(ctx context.Context, of boardCopy, version int64) (*positions.Board, error) {
	boards := s.boards
	if of.withOwners {
		boards = s.ownerBoards
	}
	found, err := boards.Get(ctx, of, func(known readcache.Copy[*positions.Board]) bool {
		return known.Value.Version >= version && s.isFresh(of.id, known.ReadAt)
	})
	return found.Value, err
}

func readBoard(ctx context.Context, db postgres.DB, of boardCopy) (*positions.Board, error) {
	all, err := inventory.All(ctx, db, of.id)
	if err != nil {
		return nil, err
	}
	return positions.New(all, of.withOwners)
}

// forget is called when a command of this process has changed a campaign.
func (s *server) forget(id uuid.UUID) {
	s.campaigns.Forget(campaignCopy{id, resource.App})
	s.campaigns.Forget(campaignCopy{id, resource.Anonymous})
	s.lists.Clear()
}

func readCampaign(ctx context.Context, db postgres.DB, id uuid.UUID, who resource.Role) (response.Tagged, error) {
	found, err := lifecycle.Get(ctx, db, id)
	if err != nil {
		return response.Tagged{}, err
	}
	return response.Tag(resource.Campaign(found, who))
}

func readCampaigns(ctx context.Context, db postgres.DB, page campaign.Page, who resource.Role) (response.Tagged, error) {
	limit := page.Limit
	page.Limit++
	list, err := campaign.List(ctx, db, page)
	if err != nil {
		return response.Tagged{}, err
	}
	list, next := response.Cut(list, limit, func(last campaign.Campaign) uuid.UUID { return last.ID })
	answer := contract.CampaignPage{NextCursor: next, Campaigns: response.Documents(list, func(one campaign.Campaign) contract.CampaignSummary { return resource.CampaignSummary(one, who) })}
	return response.Tag(answer)
}

// ListPositions answers with the board of a campaign, or with what has changed on it.
// Operators get the current state, but for their pages. Others get a copy that is up to a second old, but not
// older than they have seen; for a user, its own positions in it are current.
func (s *server) ListPositions(ctx context.Context, r operations.ListPositionsRequestObject) (operations.Answer, error) {
	c := call.Of(ctx)
	if err := s.requireCampaign(ctx, r.Campaign); err != nil {
		return nil, err
	}
	least, since := response.ValueOf(r.Params.MinVersion), response.ValueOf(r.Params.Since)
	view, err := s.view(ctx, r, c.Caller, max(least, since), since)
	switch {
	case err != nil:
		return nil, err
	case view.Version < max(least, since):
		return nil, fault.New(fault.StateConflict, "the board is at version %d and has not reached %d; read it without min_version and since", view.Version, max(least, since))
	}
	view.Tagged = view.Matched(r.Params.IfNoneMatch)
	return positions.Answer{View: view, Sending: s.answers}, nil
}

// view returns what the caller may see of a board. Its version is least or later, unless
// the board has not reached it.
func (s *server) view(ctx context.Context, r operations.ListPositionsRequestObject, who call.Caller, least, since int64) (positions.View, error) {
	copied := boardCopy{r.Campaign, who.Role.SeesAll()}
	if copied.withOwners && !who.Console {
		current, err := readBoard(ctx, s.db, copied)
		if err != nil {
			return positions.View{}, err
		}
		return current.View(since, "", nil)
	}
	shared, err := s.board(ctx, copied, least)
	if err != nil {
		return positions.View{}, err
	}
	var own []inventory.Position
	if who.User != "" {
		if own, err = inventory.OfUser(ctx, s.db, r.Campaign, who.App, who.User); err != nil {
			return positions.View{}, err
		}
	}
	return shared.View(since, who.User, own)
}

func (s *server) GetPosition(ctx context.Context, r operations.GetPositionRequestObject) (operations.Answer, error) {
	c := call.Of(ctx)
	found, err := inventory.Get(ctx, s.db, r.Campaign, shape.Position{Layer: r.Layer, Column: r.Column})
	if err != nil {
		return nil, err
	}
	isOwn := false
	if c.User != "" && found.UserID != nil && *found.UserID == c.User { // perhaps the same name at another client
		own, err := inventory.OfUser(ctx, s.db, r.Campaign, c.App, c.User)
		if err != nil {
			return nil, err
		}
		isOwn = slices.ContainsFunc(own, func(p inventory.Position) bool { return p.UserID != nil && p.Layer == r.Layer && p.Column == r.Column })
	}
	p := positions.Position(found, c.Role.SeesAll() || isOwn)
	answer, err := response.TagAt(found.AsOf, contract.PositionNow{Layer: p.Layer, Column: p.Column, Number: p.Number, Label: p.Label, Price: p.Price, State: p.State,
		Prize: p.Prize, UserID: p.UserID, ExpiresAt: p.ExpiresAt, BlockReason: p.BlockReason, BoardVersion: found.AsOf})
	return answer.Matched(r.Params.IfNoneMatch), err
}
