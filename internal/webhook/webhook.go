// Package webhook delivers events to the endpoints of apps.
//
//	event ─▶ delivery, one for each endpoint:  pending ─▶ delivered
//	                                              ▲  └──▶ failed      after the last attempt, or the endpoint was disabled
//	                                              └─ replay ─┘
//
// Endpoints. A client makes, changes, rotates and replays its own endpoints, an operator those of
// every client; see [Endpoints]. A command is done once per idempotency key, and its job never
// has a secret: [Endpoints.Create] and [Endpoints.Rotate] return the secret once. A disabled
// endpoint gets nothing; its events stay for a replay.
//
// Events. Triggers write events in the transaction of their effect, for every writer of a
// table. The id of an event is that of its messages. Its payload is stored before it is first sent, and never changes. An endpoint gets
// events of its own client's resources and of every campaign, from its creation on, and older
// ones by replay.
//
// Deliveries. A [Deliverer] claims an endpoint, and sends in batches until nothing is due, or
// other endpoints should be served. A batch reads due deliveries, renders new messages, sends a
// bounded number at a time, and records the results. No transaction is open and no row is
// locked while it sends.
//
//   - At least once: an unrecorded attempt is made again, with the same id and the same
//     bytes. Order is not promised.
//   - One worker at a time sends to an endpoint. Requests begin only in the first part of
//     the lease, and every write is fenced.
//   - A delivery is tried 13 times in about three days: see schedule.
//   - An endpoint that fails as a whole is paused: one event at a time is tried, after
//     longer and longer pauses. After days of that it is disabled.
//   - Slow endpoints have slots of their own: see [KindSlow].
//   - An answer of 410 disables the endpoint; Retry-After is respected, up to a day.
//
// Locks: after the job of a command and after outbox messages, endpoints and then deliveries.
// Events lock no endpoint.
package webhook

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Types of events that the program treats in a way of their own. All types, and what each of them says, are in
// the contract.
const (
	CampaignFrozen        = "campaign.frozen"
	CampaignVoidAnnounced = "campaign.void_announced"

	EndpointTest     = "webhook-endpoint.test"     // asked for; goes to its endpoint, also when that does not want the type
	EndpointDisabled = "webhook-endpoint.disabled" // goes to the client's other endpoints

	EndpointVerification = "webhook-endpoint.verification" // a challenge: sent to an endpoint, and stored nowhere
)

// Reason is why an endpoint is disabled.
type Reason string

// The reasons.
const (
	Asked   Reason = "asked"   // somebody has asked for it
	Gone    Reason = "gone"    // it has answered 410
	Failing Reason = "failing" // nothing has arrived for days

	Unverified Reason = "unverified" // it has not echoed a challenge, see [maxChallenges]
	Revoked    Reason = "revoked"    // the key behind it was revoked
)

// State is the state of a delivery; the package comment has the diagram.
type State string

// The states.
const (
	Pending   State = "pending"
	Delivered State = "delivered"
	Failed    State = "failed"
)

// Missed is the state of no delivery: in a filter of a replay it stands for the events that
// have none, because the endpoint was disabled, or not there.
const Missed State = "missed"

// Endpoint is an address to which a client wants events sent, and which.
type Endpoint struct {
	ID             uuid.UUID
	Client         string
	URL            string
	Events         []string // patterns: *, purchase.*, purchase.completed
	Description    *string
	MadeBy         string // the prefix of the key that has chosen the address, or enabled it; empty: no key
	CreatedAt      time.Time
	VerifiedAt     *time.Time // nil: nothing but challenges may be sent to URL
	ChallengeError *string    // of the last challenge, as its client sees it
	DisabledAt     *time.Time
	DisabledReason *Reason
	FailingSince   *time.Time // nothing has arrived since
	Failures       int        // batches that failed in a row
	PausedUntil    *time.Time // nothing is sent before
	Slow           bool       // it makes others wait: it has slots apart from theirs
	Version        int64      // the fence of a sender
	Wakes          int
}

// Secret signs an endpoint's messages. It is sealed for the row of the endpoint.
type Secret struct {
	ID         uuid.UUID
	EndpointID uuid.UUID
	Sealed     []byte
	CreatedAt  time.Time
	ExpiresAt  *time.Time // nil: the present one; others sign too until then
}

// Event is something that has happened.
type Event struct {
	ID         uuid.UUID
	Client     *string // whose resource it is; nil: everybody's
	Type       string
	Subject    uuid.UUID // the resource; of wallet.* the wallet
	Version    *int64    // of wallet.*: that of the wallet's event
	CampaignID *uuid.UUID
	At         time.Time
	Payload    json.RawMessage // the message as it is sent; nil: not rendered yet
}

// Delivery is one event for one endpoint.
type Delivery struct {
	EventID    uuid.UUID
	EndpointID uuid.UUID
	Type       string
	Subject    uuid.UUID
	CampaignID *uuid.UUID
	At         time.Time // of the event
	State      State
	Attempts   int // since it was made or replayed
	NextAt     *time.Time
	CreatedAt  time.Time
	FinishedAt *time.Time
}

// Attempt is one request, and its result.
type Attempt struct {
	EventID  uuid.UUID
	At       time.Time // when it began
	Duration time.Duration
	Status   *int    // of the answer; nil: there was none
	Error    *string // with details, for operators; nil: it has arrived
	Failure  *string // as apps see it: timeout, tls, unreachable; nil: there was an answer
}
