// Package lifecycle creates, changes, publishes, pauses, cancels and voids campaigns.
//
// A [Service] does what ends with the request, and blocks positions. Each command is one
// transaction, and all but a patch take effect once per idempotency key. Publication fixes
// the rules of the draw by a commitment (package fairdraw), makes the positions in a secret
// random order, and puts the campaign on sale.
//
// A [Canceller] runs the jobs that cancel a campaign and refund every purchase:
//
//		begin ─▶ refund, a chunk of purchases in each transaction ─▶ wait ─▶ complete the job
//
//	  - begin, one transaction under the campaign's lock: the campaign becomes cancelled,
//	    active holds end, and payments before their capture are given up. After its commit
//	    nothing can be sold, held or reserved.
//	  - refund, at most 100 purchases in a transaction under the lock: positions are freed,
//	    the purchase is cancelled, and a refund is written. A wallet is credited in the same
//	    commit, card money is refunded by the provider (package payment/refunds), and an
//	    external refund is listed for the app. A purchase whose wallet is locked, broken or
//	    full is left for later; of one that is broken or full the job says so while it waits.
//	  - wait: until no payment of the campaign is under way, and every card refund has
//	    succeeded or waits for a person. Later money is refunded by the transaction that
//	    settles its payment.
//
// The job is written with each transaction: after a crash the next worker goes on where
// the last one stopped. A purchase has one refund, by the schema. After a job that was
// given up, a new request to cancel goes on with the rest.
//
// Failpoints, each with the campaign's id:
//
//	lifecycle.begun   the campaign is cancelled, and no purchase is refunded yet
//	lifecycle.chunk   a chunk is written, and not committed
//	lifecycle.chunked a chunk is committed
//	lifecycle.finalize  every purchase is refunded, and the job is still queued
package lifecycle

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/beacon"
	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
)

// Service creates campaigns and changes their state.
type Service struct {
	db     postgres.Pool
	key    keyring.Keyring
	bounds campaign.Bounds
	chain  *beacon.Chain
	render func(Details) any
}

// New returns a Service. While a campaign stays locked, attempts are made until the context of
// the request ends. It seals the secrets of campaigns with key; chain is the beacon to which
// campaigns can bind themselves, or nil; render makes the answer's body from a campaign.
func New(gate *postgres.Gate, key keyring.Keyring, maxPositions int, chain *beacon.Chain, render func(Details) any) *Service {
	bounds := campaign.Bounds{MaxPositions: maxPositions, Beacon: chain != nil}
	return &Service{db: gate.Retry(RowWait), key: key, bounds: bounds, chain: chain, render: render}
}

// Details is a campaign with everything that belongs to it except its positions.
type Details struct {
	campaign.Campaign
	Counts     []inventory.LayerCounts // by layer; empty before publication
	Commitment *campaign.Commitment    // nil before publication
}

// Get returns a campaign with its layers, counts and commitment, or a not-found Error.
func Get(ctx context.Context, db postgres.DB, id uuid.UUID) (d Details, err error) {
	if d.Campaign, err = campaign.Get(ctx, db, id); err != nil {
		return d, err
	}
	if d.Layers, err = campaign.Layers(ctx, db, id); err != nil {
		return d, err
	}
	if d.Counts, err = inventory.CountByLayer(ctx, db, id); err != nil {
		return d, err
	}
	bound, published, err := campaign.CommitmentOf(ctx, db, id)
	if published {
		d.Commitment = &bound
	}
	return d, err
}

// Create makes a pending campaign from a draft. Its id is r.CampaignID.
func (s *Service) Create(ctx context.Context, r job.Request, d campaign.Draft) (job.Accepted, error) {
	if err := d.Check(s.bounds); err != nil {
		return job.Accepted{}, err
	}
	return s.once(ctx, r, func(tx pgx.Tx, id uuid.UUID) error { return campaign.Create(ctx, tx, id, d) })
}

// Publish opens the sale of a pending campaign. Of a large one the positions are made
// before, in short transactions. When ctx ends meanwhile, the next call goes on with them.
func (s *Service) Publish(ctx context.Context, r job.Request) (job.Accepted, error) {
	if err := s.prepare(ctx, r.CampaignID); err != nil {
		return job.Accepted{}, err
	}
	return s.once(ctx, r, func(tx pgx.Tx, id uuid.UUID) error { return Publish(ctx, tx, s.key, s.chain, id) })
}

// Pause stops the sale of an active campaign until Resume.
func (s *Service) Pause(ctx context.Context, r job.Request) (job.Accepted, error) {
	return s.once(ctx, r, locked(ctx, campaign.Pause))
}

// Resume continues the sale of a paused campaign.
func (s *Service) Resume(ctx context.Context, r job.Request) (job.Accepted, error) {
	return s.once(ctx, r, locked(ctx, campaign.Resume))
}

// locked makes a change of state run under the campaign's lock.
func locked(ctx context.Context, move func(context.Context, pgx.Tx, uuid.UUID) error) func(pgx.Tx, uuid.UUID) error {
	return func(tx pgx.Tx, id uuid.UUID) error {
		if err := campaign.Lock(ctx, tx, id); err != nil {
			return err
		}
		return move(ctx, tx, id)
	}
}

// once runs do once per idempotency key. The answer is the campaign after it; recorded is for the audit trail instead.
func (s *Service) once(ctx context.Context, r job.Request, do func(tx pgx.Tx, id uuid.UUID) error, recorded ...job.Answer) (done job.Accepted, err error) {
	err = s.persist(ctx, r.CampaignID, func() error {
		done, err = job.Once(ctx, s.db, r, func(tx pgx.Tx) (any, error) {
			answer := append(recorded, job.Answer{})[0]
			if answer.After == nil && r.Actor != nil && r.Kind != job.KindCampaignCreate {
				known, err := lockAndGet(ctx, tx, r.CampaignID)
				if err != nil {
					return nil, err
				}
				answer.Before = s.render(known)
			}
			if err := do(tx, r.CampaignID); err != nil {
				return nil, err
			}
			d, err := Get(ctx, tx, r.CampaignID)
			answer.Body = s.render(d)
			return answer, err
		})
		return err
	})
	return done, err
}

// lockAndGet locks a campaign and returns it as it is then.
func lockAndGet(ctx context.Context, tx pgx.Tx, id uuid.UUID) (Details, error) {
	if err := campaign.Lock(ctx, tx, id); err != nil {
		return Details{}, err
	}
	return Get(ctx, tx, id)
}

// Patch changes what the campaign's state allows: everything while it is pending;
// the name, a higher limit and a later end while it is active; only the name after
// that. Metadata and the public page can always change. It returns the campaign after the change.
func (s *Service) Patch(ctx context.Context, id uuid.UUID, p campaign.Patch) (d Details, err error) {
	err = s.persist(ctx, id, func() error {
		return postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
			known, err := lockAndGet(ctx, tx, id)
			if err != nil {
				return err
			}
			if err := s.patch(ctx, tx, known.Campaign, p); err != nil {
				return err
			}
			if d, err = Get(ctx, tx, id); err != nil {
				return err
			}
			return trail.Write(ctx, tx, s.render(known), s.render(d))
		})
	})
	if err != nil {
		return Details{}, fault.At(err, "lifecycle.Patch(%s)", id)
	}
	return d, nil
}

func (s *Service) patch(ctx context.Context, tx pgx.Tx, now campaign.Campaign, p campaign.Patch) error {
	if now.State == campaign.Pending {
		draft := now.Apply(p)
		if err := draft.Check(s.bounds); err != nil {
			return err
		}
		return campaign.Replace(ctx, tx, now.ID, draft)
	}
	if err := p.CheckFixed(now.State); err != nil {
		return err
	}
	if p.Metadata != nil {
		if err := campaign.Describe(ctx, tx, now.ID, *p.Metadata); err != nil {
			return err
		}
	}
	if p.PublicPage != nil || p.EmbedOrigins != nil {
		page := campaign.Draft{PublicPage: now.PublicPage, EmbedOrigins: now.EmbedOrigins}.Apply(p)
		if faults := page.CheckPage(); faults != nil {
			return fault.Invalid(faults...)
		}
		if err := campaign.Open(ctx, tx, now.ID, page); err != nil {
			return err
		}
	}
	switch {
	case now.State == campaign.Active:
		if err := campaign.Amend(ctx, tx, now.ID, p); err != nil || !p.SaleEndsAt.Set {
			return err
		}
		return payment.FollowSaleEnd(ctx, tx, now.ID, now.SaleEndsAt)
	case p.Name != nil:
		return campaign.Rename(ctx, tx, now.ID, *p.Name)
	}
	return nil // all other fields are fixed
}

// lockerTimeout bounds the search for the session that has locked a campaign; tests change it.
var lockerTimeout = time.Second

// persist retries a change while its campaign stays locked, until ctx ends. Then its error names
// the session that has locked the campaign: only operators get it.
func (s *Service) persist(ctx context.Context, id uuid.UUID, do func() error) error {
	err := postgres.RetryLocked(ctx, do)
	if ctx.Err() == nil || !postgres.IsTransient(err) {
		return err
	}
	search, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockerTimeout)
	defer cancel()
	locker, unknown := campaign.FindLocker(search, s.db, id)
	if unknown != nil || locker.PID == 0 && !postgres.IsLockTimeout(err) {
		return err
	}
	return fault.Wrap(fault.Unavailable, err, "the campaign stays locked by "+locker.String()+"; end its transaction, or try again with the same Idempotency-Key")
}

// Block takes free positions of a campaign off sale, all of them or none. An empty reason is
// none. Only a campaign that is drawn at the end of its sale can have blocked positions.
func (s *Service) Block(ctx context.Context, r job.Request, chosen []shape.Position, reason string) (job.Accepted, error) {
	return s.once(ctx, r, func(tx pgx.Tx, id uuid.UUID) error {
		return change(ctx, tx, id, chosen, inventory.Available, fault.PositionTaken, reason)
	}, job.Answer{Before: map[string]any{"available": chosen}, After: map[string]any{"blocked": chosen, "reason": reason}})
}

// Unblock puts blocked positions of a campaign on sale again, all of them or none.
func (s *Service) Unblock(ctx context.Context, r job.Request, chosen []shape.Position) (job.Accepted, error) {
	return s.once(ctx, r, func(tx pgx.Tx, id uuid.UUID) error {
		return change(ctx, tx, id, chosen, inventory.Blocked, fault.StateConflict, "")
	}, job.Answer{Before: map[string]any{"blocked": chosen}, After: map[string]any{"available": chosen}})
}

// change locks the campaign, ends expired holds, and blocks chosen positions that are Available, or
// unblocks those that are Blocked. If others are among them, it rejects all with a code.
func change(ctx context.Context, tx pgx.Tx, id uuid.UUID, chosen []shape.Position, from inventory.State, code fault.Code, reason string) error {
	changes, err := lockSale(ctx, tx, id)
	if err != nil {
		return err
	}
	form, err := campaign.ShapeOf(ctx, tx, id)
	if err != nil {
		return err
	}
	others, err := inventory.NotIn(ctx, tx, id, form, chosen, from)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		refusal := fault.Taken(others...)
		refusal.Code = code
		return refusal
	}
	more := len(chosen)
	if from == inventory.Blocked {
		more = -more
	}
	changes.Add(id, campaign.Counts{Blocked: more})
	var b pgx.Batch
	changes.Queue(&b)
	inventory.QueueBlocking(&b, id, chosen, from, reason)
	return fault.At(tx.SendBatch(ctx, &b).Close(), "lifecycle.change(%s)", id)
}

// lockSale locks a campaign whose positions can be blocked, and frees the positions of expired
// holds. It returns what that changes.
func lockSale(ctx context.Context, tx pgx.Tx, id uuid.UUID) (campaign.Changes, error) {
	found, changes := make(map[uuid.UUID]*campaign.Snapshot), make(campaign.Changes)
	var over []*inventory.Hold
	var read, end pgx.Batch
	campaign.QueueLock(&read, []uuid.UUID{id}, postgres.WaitForLocks, func(uuid.UUID) {})
	campaign.QueueSnapshots(&read, []uuid.UUID{id}, found)
	inventory.QueueFindOver(&read, []uuid.UUID{id}, &over)
	if err := tx.SendBatch(ctx, &read).Close(); err != nil {
		return nil, fault.At(err, "lifecycle.lockSale(%s)", id)
	}
	if found[id] == nil {
		return nil, campaign.NotFound(id)
	}
	if err := found[id].CheckBlocking(); err != nil || len(over) == 0 {
		return changes, err
	}
	inventory.QueueExpire(&end, over, changes)
	return changes, fault.At(tx.SendBatch(ctx, &end).Close(), "lifecycle.lockSale(%s)", id)
}
