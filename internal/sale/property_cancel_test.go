//go:build failpoint

package sale_test

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"triprize/internal/domain/access"
	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
)

// allWaits are the ways in which a transaction may wait; each ends by itself.
var allWaits = []sale.LockWait{sale.SkipLocked, sale.WaitForCampaign, forAll}

// cancel asks to cancel some purchase, or a part of it, in any state; often one that is to
// be cancelled already.
func (m *model) cancel(rt *rapid.T) func() {
	which, times := rapid.IntRange(0, 9).Draw(rt, "which"), rapid.IntRange(1, 3).Draw(rt, "times")
	parts := rapid.SliceOfN(rapid.IntRange(0, 3), times, times).Draw(rt, "parts") // so many of its positions; 0: all
	return func() {
		rows, err := m.db.Query(m.t.Context(), `SELECT id FROM purchases WHERE campaign_id = $1 ORDER BY id`, m.id)
		if err != nil {
			m.t.Errorf("cancel: %v", err)
			return
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil || len(all) == 0 {
			return
		}
		p, err := purchase.Get(m.t.Context(), m.db, access.Everything(), all[which%len(all)])
		if err != nil {
			m.t.Errorf("cancel: %v", err)
			return
		}
		requests := make([]job.Request, times)
		for i, n := range parts {
			var positions []shape.Position
			for k := range min(n, len(p.Items)) {
				positions = append(positions, p.Items[(i+k)%len(p.Items)].Position)
			}
			requests[i] = fixture.CancelRequestOf(m.t, m.id, sale.Cancellation{PurchaseID: p.ID, Positions: positions, By: "app:test"})
		}
		refs := fixture.Accept(m.t, m.db, requests...)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.backs = append(m.backs, refs...)
	}
}

func (m *model) someBacks(rt *rapid.T) []job.Ref {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.backs) == 0 {
		return nil
	}
	from := rapid.IntRange(0, len(m.backs)-1).Draw(rt, "from")
	return append([]job.Ref(nil), m.backs[from:]...)
}

func (m *model) deliverBacks(rt *rapid.T) func() {
	refs, wait := m.someBacks(rt), rapid.SampledFrom(allWaits).Draw(rt, "wait")
	return func() { m.finalizeBacks(refs, wait) }
}

// deliverBacksAndDie delivers cancellations to a worker that dies right before
// the commit of one that concerns the victim.
func (m *model) deliverBacksAndDie(rt *rapid.T) func() {
	refs := m.someBacks(rt)
	victim := fmt.Sprintf("user-%d", rapid.IntRange(1, 4).Draw(rt, "victim"))
	return func() {
		defer failpoint.Set("cancellation.commit", victim, func() { panic(errDies) })()
		m.finalizeBacks(refs, forAll)
	}
}

// finalizeBacks finalizes cancellations like a worker, until it dies.
func (m *model) finalizeBacks(refs []job.Ref, wait sale.LockWait) {
	defer func() {
		if p := recover(); p != nil && p != errDies { //nolint:errorlint // the very value
			panic(p)
		}
	}()
	if _, err := m.seller.Cancel(m.t.Context(), refs, wait); err != nil && !postgres.IsTransient(err) {
		m.t.Errorf("cancel: %v", err)
	}
}

// givenBack counts the positions of cancelled purchases that had been completed, and cancelled parts.
func (m *model) givenBack(rt *rapid.T) (n int) {
	err := m.db.QueryRow(m.t.Context(), `
		SELECT (SELECT count(*) FROM purchases p JOIN purchase_items i ON i.purchase_id = p.id
		        WHERE p.campaign_id = $1 AND p.state IN ('cancelled', 'refunding') AND p.completed_at IS NOT NULL)
		     + (SELECT count(*) FROM purchases, jsonb_path_query(partial_cancellations, '$[*].positions[*]') WHERE campaign_id = $1)`, m.id).Scan(&n)
	if err != nil {
		rt.Fatal(err)
	}
	return n
}
