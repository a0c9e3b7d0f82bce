package upkeep

import (
	"slices"

	"triprize/internal/campaign"
	"triprize/internal/drawing"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/audit"
	"triprize/internal/purchase"
	"triprize/internal/trail"
	"triprize/internal/wallet"
	"triprize/internal/webhook"
)

// A long wallet is for [audit.Check] alone, and a large campaign has a walk of its own: each pass
// takes seconds, and the walk then pauses for long, see Pace.
var walks = []audit.Walk{
	{Name: "campaigns", Pace: 200, Invariants: ofCampaigns, Parts: partsOfCampaigns, Next: some + someCampaigns + upTo, Recent: some + busyCampaigns + upTo},
	{Name: "wallets", Pace: 1000, Invariants: wallet.Invariants, Parts: partsOfWallets, Next: some + someWallets + upTo, Recent: some + busyWallets + upTo},
	{Name: "ledger-entries", Pace: 1000, Invariants: named("ledger_entries", "entry_currencies"), Parts: partsOfEntries,
		Next: `SELECT id FROM ledger_entries WHERE id > $1 ORDER BY id LIMIT 100`, Recent: `SELECT id FROM ledger_entries ORDER BY id DESC LIMIT 100`},
	{Name: "jobs", Pace: 1000, Invariants: named("queued_jobs"), Parts: partsOfJobs,
		Next: `SELECT id FROM jobs WHERE id > $1 ORDER BY id LIMIT 200`},
	{Name: "webhook-events", Pace: 1000, Invariants: webhook.Invariants, Parts: partsOfEvents, Next: someEvents},
	{Name: "large-campaigns", Pace: 1000, Invariants: ofCampaigns, Parts: partsOfCampaigns,
		Next: `SELECT id FROM campaigns WHERE id > $1 AND positions_total > 20000 ORDER BY id LIMIT 1`},
	trail.Walk,
}

// Every topic but wallet and webhook has invariants of campaigns. What wallets paid is in the books of both.
var ofCampaigns = append(slices.DeleteFunc(slices.Concat(job.Invariants, campaign.Invariants, inventory.Invariants, purchase.Invariants,
	payment.Invariants, drawing.Invariants), func(i audit.Invariant) bool { return i.Check == "queued_jobs" }), named("wallet_payments")...)

func named(checks ...string) []audit.Invariant {
	return slices.DeleteFunc(slices.Clone(Invariants), func(i audit.Invariant) bool { return !slices.Contains(checks, i.Check) })
}

// LATERAL with LIMIT or OFFSET, here and in invariants, looks rows up by their key. As a join, it is a
// table read as a whole when there are no statistics yet.
//
// The first of some, as many as have size 10000 together, but one at least.
const (
	some = `WITH candidate AS (`
	upTo = `)
	SELECT id FROM (SELECT id, size, sum(size) OVER (ORDER BY id) AS total FROM candidate) c WHERE total <= 10000 OR total = size ORDER BY id`

	// Positions, purchases and holds have no foreign key, so the next campaign may be one that is
	// not there. LIMIT ends the recursion.
	someCampaigns = `
		SELECT w.id, coalesce(c.positions_total, 10000) AS size FROM (
			WITH RECURSIVE w (id) AS (
				SELECT $1::uuid
				UNION ALL SELECT least((SELECT id FROM campaigns WHERE id > w.id ORDER BY id LIMIT 1),
				                       (SELECT campaign_id FROM positions WHERE campaign_id > w.id ORDER BY campaign_id LIMIT 1),
				                       (SELECT campaign_id FROM purchases WHERE campaign_id > w.id ORDER BY campaign_id LIMIT 1),
				                       (SELECT campaign_id FROM holds WHERE campaign_id > w.id ORDER BY campaign_id LIMIT 1))
				FROM w WHERE w.id IS NOT NULL)
			SELECT id FROM w) w
		LEFT JOIN campaigns c ON c.id = w.id
		WHERE w.id > $1 AND coalesce(c.positions_total, 0) <= 20000 LIMIT 20`
	// Every change of a campaign comes from a job.
	busyCampaigns = `
		SELECT j.id, c.positions_total AS size
		FROM (SELECT DISTINCT campaign_id AS id FROM (SELECT campaign_id FROM jobs ORDER BY id DESC LIMIT 500) j) j
		CROSS JOIN LATERAL (SELECT positions_total FROM campaigns WHERE id = j.id LIMIT 1) c
		WHERE c.positions_total <= 20000 ORDER BY random() LIMIT 10`

	someWallets = `SELECT id, version AS size FROM wallets WHERE id > $1 AND version <= 20000 ORDER BY id LIMIT 200`
	busyWallets = `
		SELECT t.id, w.version AS size
		FROM (SELECT DISTINCT t.id FROM (SELECT debit_wallet, credit_wallet FROM ledger_entries ORDER BY id DESC LIMIT 200) e
		      CROSS JOIN LATERAL (VALUES (debit_wallet), (credit_wallet)) t (id)) t
		CROSS JOIN LATERAL (SELECT version FROM wallets WHERE id = t.id LIMIT 1) w
		WHERE w.version <= 20000`

	// An attempt may be left without its event.
	someEvents = `
		SELECT id FROM (SELECT id FROM webhook_events WHERE id > $1 ORDER BY id LIMIT 200) e
		UNION SELECT event_id FROM (SELECT event_id FROM webhook_attempts WHERE event_id > $1 ORDER BY event_id LIMIT 200) a
		ORDER BY 1 LIMIT 200`
)

const partsOfCampaigns = `
	campaigns AS NOT MATERIALIZED (SELECT * FROM campaigns WHERE id = ANY($2::uuid[])),
	layers AS NOT MATERIALIZED (SELECT * FROM layers WHERE campaign_id = ANY($2)),
	positions AS NOT MATERIALIZED (SELECT * FROM positions WHERE campaign_id = ANY($2)),
	holds AS NOT MATERIALIZED (SELECT * FROM holds WHERE campaign_id = ANY($2)),
	jobs AS NOT MATERIALIZED (SELECT * FROM jobs WHERE campaign_id = ANY($2)),
	purchases AS NOT MATERIALIZED (SELECT * FROM purchases WHERE campaign_id = ANY($2)),
	payments AS MATERIALIZED (
		SELECT * FROM payments WHERE purchase_id = ANY(ARRAY(SELECT id FROM purchases UNION SELECT purchase_id FROM jobs WHERE purchase_id IS NOT NULL))),
	refunds AS NOT MATERIALIZED (SELECT * FROM refunds WHERE campaign_id = ANY($2)),
	ledger_entries AS MATERIALIZED (
		SELECT e.* FROM (
			SELECT 'purchase:' || id AS reference FROM purchases
			UNION SELECT 'refund:' || id FROM purchases
			UNION SELECT 'refund:' || id || ':' || (part ->> 'job_id') FROM purchases, jsonb_array_elements(partial_cancellations) AS part) r
		CROSS JOIN LATERAL (SELECT * FROM ledger_entries WHERE scope = '' AND reference = r.reference LIMIT 1) e),
	commitments AS NOT MATERIALIZED (SELECT * FROM commitments WHERE campaign_id = ANY($2)),
	freezes AS NOT MATERIALIZED (SELECT * FROM freezes WHERE campaign_id = ANY($2)),
	draws AS NOT MATERIALIZED (SELECT * FROM draws WHERE campaign_id = ANY($2)),
	draw_waits AS NOT MATERIALIZED (SELECT * FROM draw_waits WHERE campaign_id = ANY($2))`

// Other wallets that an entry touches are an account of the system here, so that sums are right.
const (
	partsOfWallets = `
	touched AS MATERIALIZED (SELECT unnest($2::uuid[]) AS id),
	wallets AS NOT MATERIALIZED (SELECT * FROM wallets WHERE id = ANY($2)),
	wallet_events AS NOT MATERIALIZED (SELECT * FROM wallet_events WHERE wallet_id = ANY($2)),
	wallet_snapshots AS NOT MATERIALIZED (SELECT * FROM wallet_snapshots WHERE wallet_id = ANY($2)),
	ledger_entries AS MATERIALIZED (` + touchedOnly + `(ARRAY(SELECT entry_id FROM wallet_events))),
	authorizations AS MATERIALIZED (
		SELECT * FROM authorizations WHERE id = ANY(ARRAY(
			SELECT id FROM authorizations WHERE state = 'active' AND wallet_id = ANY($2)
			UNION SELECT authorization_id FROM ledger_entries WHERE authorization_id IS NOT NULL))),
	purchases AS MATERIALIZED (
		SELECT * FROM purchases
		WHERE id = ANY(ARRAY(SELECT substring(reference FROM '^purchase:` + uuidForm + `$')::uuid FROM ledger_entries WHERE kind = 'purchase' AND scope = ''))
		   OR id = ANY(ARRAY(SELECT substring(reference FROM '^refund:` + uuidForm + `')::uuid FROM ledger_entries WHERE kind = 'refund' AND scope = '')))`
	// The events of a long wallet would have to be searched.
	partsOfEntries = `
	touched AS MATERIALIZED (
		SELECT DISTINCT t.id FROM ledger_entries e CROSS JOIN LATERAL (VALUES (debit_wallet), (credit_wallet)) t (id)
		WHERE e.id = ANY($2::uuid[]) AND coalesce((SELECT version FROM wallets WHERE id = t.id), 0) <= 5000),
	ledger_entries AS MATERIALIZED (` + touchedOnly + `($2)),
	wallet_events AS MATERIALIZED (SELECT v.* FROM touched t JOIN wallet_events v ON v.wallet_id = t.id WHERE v.entry_id = ANY($2)),
	wallets AS MATERIALIZED (SELECT * FROM wallets WHERE id = ANY(ARRAY(SELECT id FROM touched)))`

	touchedOnly = `
		SELECT e.id, e.kind, d.id AS debit_wallet, c.id AS credit_wallet,
		       coalesce(e.debit_account, CASE WHEN d.id IS NULL THEN 'other' END) AS debit_account,
		       coalesce(e.credit_account, CASE WHEN c.id IS NULL THEN 'other' END) AS credit_account,
		       e.amount, e.currency, e.scope, e.reference, e.authorization_id, e.purchase_id
		FROM ledger_entries e LEFT JOIN touched d ON d.id = e.debit_wallet LEFT JOIN touched c ON c.id = e.credit_wallet
		WHERE e.id = ANY`
	uuidForm = `([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})`
)

// The outbox is read through for a job that is queued: the fewer the better.
const partsOfJobs = `jobs AS NOT MATERIALIZED (SELECT * FROM jobs WHERE id = ANY($2::uuid[]) AND accepted_at < clock_timestamp() - interval '1 minute')`

// The lists of ids are arrays, so that no plan reads a whole table for them.
//
// The ids of a walk over events follow one another. Deliveries are stored by endpoint.
const partsOfEvents = `
	webhook_events AS MATERIALIZED (SELECT * FROM webhook_events WHERE id BETWEEN ($2::uuid[])[1] AND ($2)[cardinality($2)]),
	webhook_attempts AS MATERIALIZED (SELECT * FROM webhook_attempts WHERE event_id BETWEEN ($2)[1] AND ($2)[cardinality($2)]),
	webhook_deliveries AS MATERIALIZED (
		SELECT d.* FROM webhook_endpoints p JOIN webhook_deliveries d ON d.endpoint_id = p.id AND d.event_id BETWEEN ($2)[1] AND ($2)[cardinality($2)]),
	webhook_endpoints AS NOT MATERIALIZED (
		SELECT * FROM webhook_endpoints WHERE id = ANY(ARRAY(SELECT endpoint_id FROM webhook_deliveries UNION SELECT subject FROM webhook_events))),
	refunds AS NOT MATERIALIZED (SELECT * FROM refunds WHERE id = ANY(ARRAY(SELECT subject FROM webhook_events))),
	purchases AS NOT MATERIALIZED (SELECT * FROM purchases WHERE id = ANY(ARRAY(SELECT subject FROM webhook_events UNION SELECT purchase_id FROM refunds))),
	holds AS NOT MATERIALIZED (SELECT * FROM holds WHERE id = ANY(ARRAY(SELECT subject FROM webhook_events))),
	jobs AS NOT MATERIALIZED (SELECT * FROM jobs WHERE id = ANY(ARRAY(SELECT subject FROM webhook_events))),
	wallets AS NOT MATERIALIZED (SELECT * FROM wallets WHERE id = ANY(ARRAY(SELECT subject FROM webhook_events)))`
