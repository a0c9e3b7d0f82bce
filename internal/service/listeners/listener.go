package listeners

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/webhookhttp"
	"triprize/internal/store/webhook"
)

// Lasts is how long a listener is kept for its client to come back.
const Lasts = time.Hour

// perFetch is how many events are fetched at once at most.
const perFetch = 100

// Renderer returns the messages of events that have none yet, by event.
type Renderer func(ctx context.Context, events []webhook.Event) (map[uuid.UUID]json.RawMessage, error)

// Service opens listeners.
type Service struct {
	db     *pgxpool.Pool
	seal   func(endpoint uuid.UUID, secret string) []byte
	render Renderer
	most   int
}

// New returns a Service. seal makes of a secret what is stored of it; a listener has one that no one uses: who
// listens signs with one of its own. A client has most endpoints at most, listeners among them.
func New(db *pgxpool.Pool, seal func(endpoint uuid.UUID, secret string) []byte, render Renderer, most int) *Service {
	return &Service{db: db, seal: seal, render: render, most: most}
}

// Listener is the end of one connection.
type Listener struct {
	service  *Service
	endpoint webhook.Endpoint
}

// Message is an event as it is sent.
type Message struct {
	ID      uuid.UUID // the webhook-id
	number  int64
	Place   string // where to go on after it
	Payload json.RawMessage
}

// Open begins to listen for a client with a key (its prefix): anew, or with the place of an earlier listener after it.
// One that is over, or of somebody else, is a not-found Error; other events than before are
// an invalid-request Error.
func (s *Service) Open(ctx context.Context, client, key string, events []string, place string) (*Listener, error) {
	l := &Listener{service: s}
	err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
		if place == "" {
			id := uuidv7.New()
			l.endpoint, err = webhook.Create(ctx, tx, webhook.Endpoint{ID: id, Client: client, Events: events, MadeBy: key}, Lasts, s.seal(id, webhookhttp.NewSecret()), s.most)
			return err
		}
		id, seen, ok := parsePlace(place)
		if !ok {
			return fault.Invalid(fault.Field{Pointer: "Last-Event-ID", Detail: "is not of this stream: begin anew, without it"})
		}
		found, err := webhook.Get(ctx, tx, id)
		switch {
		case err != nil && fault.CodeOf(err) != fault.NotFound:
			return err
		case err != nil || found.URL != nil || found.Client != client: // one text: nobody learns which ids there are
			return fault.New(fault.NotFound, "there is no listener %s, or it is over: begin anew, without Last-Event-ID", id)
		case !slices.Equal(found.Events, events):
			return fault.Invalid(fault.Field{Pointer: "?events", Detail: "must be those of the stream that Last-Event-ID is of: " + strings.Join(found.Events, ",")})
		}
		l.endpoint, err = webhook.Resume(ctx, tx, id, key, seen, Lasts)
		return err
	})
	return l, err
}

// Place is where a client goes on that has seen no event of this connection.
func (l *Listener) Place(number int64) string {
	return l.endpoint.ID.String() + "." + strconv.FormatInt(number, 10)
}

func parsePlace(place string) (id uuid.UUID, seen int64, ok bool) {
	first, last, _ := strings.Cut(place, ".")
	id, idErr := uuid.Parse(first)
	seen, err := strconv.ParseInt(last, 10, 64)
	return id, seen, idErr == nil && err == nil && seen >= 0
}

// Fetch returns the next messages; none, when nothing has happened. It fails with
// agenda.ErrFenced when another connection has taken over.
func (l *Listener) Fetch(ctx context.Context) ([]Message, error) {
	due, err := webhook.DueEvents(ctx, l.service.db, l.endpoint.ID, perFetch)
	if err != nil {
		return nil, err
	}
	payloads, err := l.payloads(ctx, due)
	if err != nil {
		return nil, err
	}
	ids := make([]uuid.UUID, len(due))
	for i, e := range due {
		ids[i] = e.ID
	}
	var numbers map[uuid.UUID]int64
	if err := postgres.InTx(ctx, l.service.db, func(tx pgx.Tx) (err error) {
		numbers, err = webhook.NoteFetched(ctx, tx, l.endpoint, ids, Lasts)
		return err
	}); err != nil {
		return nil, err
	}
	messages := make([]Message, len(due))
	for i, e := range due {
		messages[i] = Message{ID: e.ID, number: numbers[e.ID], Place: l.Place(numbers[e.ID]), Payload: payloads[e.ID]}
	}
	slices.SortFunc(messages, func(a, b Message) int { return cmp.Compare(a.number, b.number) }) // a place is after all before it
	return messages, nil
}

// payloads are the messages of events, those that are stored and those that are made now.
func (l *Listener) payloads(ctx context.Context, due []webhook.DueEvent) (map[uuid.UUID]json.RawMessage, error) {
	payloads := make(map[uuid.UUID]json.RawMessage, len(due))
	var fresh []webhook.Event
	for _, e := range due {
		if payloads[e.ID] = e.Payload; e.Payload == nil {
			fresh = append(fresh, e.Event)
		}
	}
	if len(fresh) == 0 {
		return payloads, nil
	}
	made, err := l.service.render(ctx, fresh)
	if err != nil {
		return nil, err
	}
	for _, e := range fresh {
		if payloads[e.ID] = made[e.ID]; made[e.ID] == nil {
			return nil, fmt.Errorf("listeners: event %s has no message", e.ID)
		}
	}
	return payloads, nil
}
