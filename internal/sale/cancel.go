package sale

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/failpoint"
	"triprize/internal/purchase"
	"triprize/internal/wallet"
)

// Cancellation is the payload of a cancellation job: which purchase to cancel, or which
// positions of it, for whom and why.
type Cancellation struct {
	PurchaseID uuid.UUID        `json:"purchase_id"`
	Positions  []shape.Position `json:"positions,omitempty"` // none: all
	By         string           `json:"by"`                  // role:client, and /user when one was signed in
	Reason     string           `json:"reason,omitempty"`
	AnyTime    bool             `json:"any_time,omitempty"` // ignore the policy's deadline, and disputes, as for operators
	Disputed   bool             `json:"disputed,omitempty"` // by the system, without a refund: the buyer's bank has taken the money back
}

// Disputed is the reason of a cancellation by the system since the dispute of the purchase is lost.
const Disputed = "disputed"

// Release returns the request for the job that cancels a purchase whose dispute is lost. There is one for a purchase.
func (s *Seller) Release(p payment.Ref) (job.Request, error) {
	key := Disputed + "-" + p.PurchaseID.String()
	payload, err := json.Marshal(Cancellation{PurchaseID: p.PurchaseID, By: job.System, Reason: Disputed, AnyTime: true, Disputed: true})
	return job.Request{ID: uuidv7.New(), Client: job.System, Key: key, Hash: sha256.Sum256([]byte(key)), Kind: job.KindCancellation, CampaignID: p.CampaignID,
		Payload: payload, Retention: s.jobRetention}, err
}

// Cancel completes cancellation jobs in one transaction: it cancels the purchases, frees
// their positions and refunds the wallets that paid; money of a card gets a refund row. A job
// whose purchase cannot be cancelled fails; of several for one purchase, the first succeeds.
// Cancel ignores jobs that are final, wait for the end of a payment already, or do not exist.
// A job is Busy when its campaign, the wallet that paid, or an open payment is locked for
// longer than wait.
//
// A cancellation of some positions leaves the purchase completed, with the others; that of all
// that are left is one of the purchase. One since a dispute is lost refunds nothing. While the bank has the money, because the charge is
// disputed, only operators cancel the purchase. A purchase that is being paid is not cancelled
// here: its payment is cancelled before its capture, and refunded after it, and its end
// completes the cancellation (see [Seller.SettlePayments]).
func (s *Seller) Cancel(ctx context.Context, refs []job.Ref, wait job.LockWait) (Report, error) {
	return s.run(ctx, "cancellation", refs, wait, cancel)
}

func cancel(ctx context.Context, tx pgx.Tx, refs []job.Ref, wait job.LockWait) (Report, error) {
	in, err := lockCancellations(ctx, tx, refs, wait)
	if err != nil {
		return Report{}, err
	}
	if err := in.lockPayees(ctx, tx, wait); err != nil {
		return Report{}, err
	}
	for _, c := range in.wanted {
		if err := in.decideOne(c); err != nil {
			return Report{}, err
		}
	}
	if err := in.write(ctx, tx); err != nil {
		return Report{}, err
	}
	failpoint.Hit("cancellation.commit", names(in.wanted, (*cancellation).buyer))
	return in.Report, nil
}

// cancellation is a queued cancellation job with all that its decision needs.
type cancellation struct {
	job.Ref
	Cancellation
	campaign *campaign.State    // nil: there is none
	board    int64              // the campaign's board_version
	until    *time.Time         // the policy's deadline
	late     bool               // it was accepted after the deadline
	bought   *purchase.Purchase // nil: there is none; shared by all cancellations of it
	payment  *payment.Payment   // of a purchase by card that is open or completed; shared like bought
	locked   bool               // this transaction has locked the payment
	unpaid   bool               // nothing is left of what was paid, see [payment.QueueTakenBack]
}

// cancellations is what a transaction of cancellations has locked and read, and its effects.
type cancellations struct {
	*effects
	wanted []*cancellation // in the order of arrival
}

// wantedSQL reads those of the jobs $1 uuid[] that are queued cancellations of the campaigns $2
// uuid[] and do not wait for the end of a payment, in order of arrival. The deadline applies to the time of the request, not
// of this transaction. OFFSET 0: see queuedSQL.
const wantedSQL = `
	SELECT j.id, j.campaign_id, j.payload, c.state, coalesce(c.board_version, 0), p.until, coalesce(j.accepted_at >= p.until, false)
	FROM unnest($1::uuid[]) AS i (id)
	CROSS JOIN LATERAL (SELECT * FROM jobs WHERE id = i.id OFFSET 0) j
	LEFT JOIN campaigns c ON c.id = j.campaign_id
	CROSS JOIN LATERAL (SELECT (c.policies ->> 'cancellation_until')::timestamptz AS until) p
	WHERE j.state = 'queued' AND j.purchase_id IS NULL AND j.kind = 'cancellation' AND j.campaign_id = ANY($2) ORDER BY j.accepted_at, j.id`

// lockCancellations locks the campaigns of jobs and reads, in later statements, what the
// decisions need. A purchase that many jobs want to cancel is read once. It locks the
// payments that are open.
func lockCancellations(ctx context.Context, tx pgx.Tx, refs []job.Ref, wait job.LockWait) (*cancellations, error) {
	in := &cancellations{effects: newEffects()}
	jobs, campaigns := idsOf(refs)
	locked := make(map[uuid.UUID]bool, len(campaigns))
	var b pgx.Batch
	queueLock(&b, wait, campaigns, locked)
	b.Queue(wantedSQL, jobs, campaigns).Query(in.scan)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("lockCancellations: %w", err)
	}
	all, bought := in.wanted, make(map[uuid.UUID]*purchase.Purchase)
	in.wanted = nil
	var ids []uuid.UUID
	for _, c := range all {
		if c.campaign != nil && !locked[c.CampaignID] {
			in.Busy, in.Locked = append(in.Busy, c.Ref), append(in.Locked, c.Ref)
			continue
		}
		in.wanted = append(in.wanted, c)
		if _, known := bought[c.PurchaseID]; !known {
			bought[c.PurchaseID] = nil
			ids = append(ids, c.PurchaseID)
		}
	}
	if len(ids) == 0 {
		return in, nil
	}
	var reads pgx.Batch
	purchase.QueueGet(&reads, ids, bought)
	if err := tx.SendBatch(ctx, &reads).Close(); err != nil {
		return nil, fmt.Errorf("lockCancellations: %w", err)
	}
	for _, c := range in.wanted {
		c.bought = bought[c.PurchaseID]
		if c.bought != nil && c.bought.CampaignID != c.CampaignID {
			return nil, fmt.Errorf("job %s: purchase %s is of campaign %s, which is not locked", c.ID, c.PurchaseID, c.bought.CampaignID)
		}
	}
	return in, in.lockOpen(ctx, tx, bought, wait)
}

// lockOpen locks the payments of purchases by card that are open or completed, and reads
// them: a dispute that comes meanwhile waits. Without such purchases it costs nothing.
func (in *cancellations) lockOpen(ctx context.Context, tx pgx.Tx, bought map[uuid.UUID]*purchase.Purchase, wait job.LockWait) error {
	var ids []uuid.UUID
	for id, p := range bought {
		if p != nil && (p.State.Open() || p.State == purchase.Completed && p.PaymentMethod == purchase.Card) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	locked, payments := make(map[uuid.UUID]bool, len(ids)), make(map[uuid.UUID]*payment.Payment, len(ids))
	var b pgx.Batch
	payment.QueueLock(&b, ids, queueLimit(&b, wait.Wallets), locked, payments)
	unpaid := make(map[uuid.UUID]bool)
	if slices.ContainsFunc(in.wanted, func(c *cancellation) bool { return c.Disputed }) {
		payment.QueueTakenBack(&b, ids, unpaid)
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("lockCancellations: %w", err)
	}
	for _, c := range in.wanted {
		c.payment, c.locked, c.unpaid = payments[c.PurchaseID], locked[c.PurchaseID], unpaid[c.PurchaseID]
	}
	return nil
}

func (in *cancellations) scan(rows pgx.Rows) error {
	for rows.Next() {
		c := &cancellation{}
		var payload []byte
		if err := rows.Scan(&c.ID, &c.CampaignID, &payload, &c.campaign, &c.board, &c.until, &c.late); err != nil {
			return err
		}
		if err := json.Unmarshal(payload, &c.Cancellation); err != nil {
			return fmt.Errorf("the payload of job %s: %w", c.ID, err)
		}
		in.wanted = append(in.wanted, c)
	}
	return rows.Err()
}

// lockPayees locks the wallets of purchases that may be cancelled and were paid by
// wallet.
func (in *cancellations) lockPayees(ctx context.Context, tx pgx.Tx, wait job.LockWait) error {
	var want []wallet.PayBack
	for _, c := range in.wanted {
		if c.check() == nil && c.bought.PaymentMethod == purchase.Wallet {
			want = append(want, c.payBack())
			if all := want[len(want)-1]; all.Part != uuid.Nil { // those before it may leave nothing else
				all.Part = uuid.Nil
				want = append(want, all)
			}
		}
	}
	if len(want) == 0 {
		return nil
	}
	mode, err := forWallets(ctx, tx, wait)
	if err == nil {
		in.wallets, err = wallet.OpenPayees(ctx, tx, want, mode)
	}
	return err
}
