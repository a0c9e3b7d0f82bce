// Package lookup says what an id or a word is, whatever it is the id of.
//
// Each look-up is a query that goes along an index, for one kind of thing. Few ids belong to two
// kinds, so each look-up is made that the text can be meant for.
package lookup

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
)

// Hit is one thing that a text names, or that belongs to what it names.
type Hit struct {
	What  string          `json:"what"`  // job, purchase, …
	ID    string          `json:"id"`    // its own
	State string          `json:"state"` // empty: it has none
	Facts json.RawMessage `json:"facts"` // an object: ids of what it belongs to, and what matters most
	See   string          `json:"see"`   // the request or the command that shows all of it
}

// lookup finds one kind of thing.
type lookup struct {
	what string
	sql  string // of $1, the text: returns id, state, facts
	see  string // {} stands for the id
	id   bool   // only for a text that is a UUID: then $1 is one
}

// maxHits is how many things of one kind are found, the newest first.
const maxHits = 10

// SearchedJobs is how many jobs are searched for what no index has: the newest ones.
const SearchedJobs = 50_000

// Find returns what the text names as it is, with the spaces that it has, in the order of lookups; of each look-up ten at most, the newest.
// kinds are those that are looked up; none: all.
func Find(ctx context.Context, db postgres.DB, text string, kinds ...string) ([]Hit, error) {
	if text == "" || !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		return nil, nil // the database has no such text
	}
	key := ofKey.FindStringSubmatch(strings.TrimSpace(text)) // a secret that was copied with a space is one
	id, notID := uuid.Parse(text)
	isID := notID == nil && len(text) == len(id.String()) // other forms are other texts, and may be the ids of users
	var found []Hit
	for _, l := range lookups {
		if len(kinds) > 0 && !slices.Contains(kinds, l.what) || l.id && !isID || key != nil && l.what != "key" {
			continue
		}
		var arg any = text
		if l.id {
			arg = id
		} else if key != nil {
			arg = key[1]
		}
		hits, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (Hit, error) {
			h := Hit{What: l.what}
			err := row.Scan(&h.ID, &h.State, &h.Facts)
			h.See = strings.ReplaceAll(l.see, "{}", h.ID)
			return h, err
		}, l.sql, arg, maxHits)
		if err != nil {
			return nil, fault.At(err, "lookup.Find(%s)", l.what)
		}
		for _, h := range hits {
			if !slices.ContainsFunc(found, func(other Hit) bool {
				return other.What == h.What && other.ID == h.ID && string(other.Facts) == string(h.Facts)
			}) {
				found = append(found, h)
			}
		}
	}
	return found, nil
}

// ofKey is an API key, or what its owner may show of it: the database never gets the secret.
var ofKey = regexp.MustCompile(`^tp_([0-9a-f]{12})(?:_[0-9a-f]*)?$`)

// Kinds lists the kinds of things that Find finds.
func Kinds() (all []string) {
	for _, l := range lookups {
		all = append(all, l.what)
	}
	return slices.Compact(all)
}

// facts makes an object of SQL, without what is null.
func facts(pairs string) string { return `json_strip_nulls(json_build_object(` + pairs + `))` }

// jobs selects from jobs j.
func jobs(from string) string {
	return `SELECT j.id::text, j.state, ` + facts(`'kind', j.kind, 'client', j.client, 'user', j.user_id, 'idempotency_key', j.idempotency_key, 'campaign', j.campaign_id,
		'purchase', coalesce(j.purchase_id::text, j.result ->> 'purchase_id'), 'problem', j.problem ->> 'code', 'request', j.request_id, 'accepted', j.accepted_at`) + from
}

// purchases selects from purchases p.
func purchases(from string) string {
	return `SELECT p.id::text, p.state, ` + facts(`'client', p.client, 'user', p.user_id, 'campaign', p.campaign_id, 'job', p.id, 'amount', p.amount, 'currency', p.currency,
		'paid_by', p.payment_method, 'reference', p.payment_reference, 'failure', p.failure, 'created', p.created_at`) + ` FROM purchases p WHERE ` + from
}

func payments(where string) string {
	return `SELECT p.purchase_id::text, p.phase, ` + facts(`'intent', p.intent_id, 'at_provider', p.intent_status, 'waits_for', p.waiting_for, 'job', p.purchase_id, 'campaign', p.campaign_id,
		'received', p.received, 'currency', p.currency, 'due', p.due_at`) + ` FROM payments p WHERE ` + where + ` LIMIT $2`
}

func refunds(where string) string {
	return `SELECT r.id::text, r.state, ` + facts(`'purchase', r.purchase_id, 'user', r.user_id, 'campaign', r.campaign_id, 'amount', r.amount, 'currency', r.currency,
		'method', r.method, 'reference', r.provider_id, 'failure', r.failure`) + ` FROM refunds r WHERE ` + where + ` ORDER BY r.id DESC LIMIT $2`
}

func holds(where string) string {
	return `SELECT h.id::text, h.state, ` + facts(`'user', h.user_id, 'client', h.client, 'campaign', h.campaign_id, 'purchase', h.purchase_id, 'expires', h.expires_at`) +
		` FROM holds h WHERE ` + where + ` ORDER BY h.id DESC LIMIT $2`
}

func wallets(where string) string {
	return `SELECT w.id::text, '', ` + facts(`'owner', w.owner_id, 'client', w.client, 'balance', w.balance, 'held', w.held, 'currency', w.currency`) + ` FROM wallets w WHERE ` + where + ` LIMIT $2`
}

func disputes(where string) string {
	return `SELECT d.id, d.status, ` + facts(`'purchase', d.purchase_id, 'reason', d.reason, 'amount', d.amount, 'currency', d.currency, 'fee', d.fee,
		'fee_currency', nullif(d.fee_currency, ''), 'opened', d.opened_at, 'closed', d.closed_at`) + ` FROM disputes d WHERE ` + where + ` LIMIT $2`
}

func discrepancies(where string) string {
	return `SELECT d.id::text, CASE WHEN d.closed_at IS NOT NULL THEN 'closed' WHEN d.explained_at IS NOT NULL THEN 'explained' ELSE 'open' END, ` +
		facts(`'kind', d.kind, 'object', d.object_id, 'transaction', d.transaction_id, 'purchase', d.purchase_id, 'found', d.found_at`) + ` FROM payment_discrepancies d WHERE ` + where + ` LIMIT $2`
}

const (
	seeJob      = "GET /v1/jobs/{}?include=purchase"
	seePurchase = "GET /v1/purchases/{}"
	seeRefund   = "GET /v1/refunds/{}"
	seeHold     = "GET /v1/holds/{}"
	seeWallet   = "GET /v1/wallets/{}/events"
	seeDraw     = "GET /v1/campaigns/{}/draw"
	seeBalance  = "GET /v1/payment-discrepancies"
)

// lookups are in the order in which people read what is found.
var lookups = []lookup{
	{"job", jobs(` FROM jobs j WHERE j.id = $1 LIMIT $2`), seeJob, true},
	{"job", jobs(` FROM (SELECT name FROM api_clients UNION ALL SELECT unnest(ARRAY['` + job.System + `', '` + job.Tool + `', '` + trail.Persons + `'])) c (name)
		CROSS JOIN LATERAL (SELECT * FROM jobs WHERE client = c.name AND idempotency_key = $1 OFFSET 0) j LIMIT $2`), seeJob, false},
	{"job", jobs(fmt.Sprintf(` FROM (SELECT * FROM jobs ORDER BY id DESC LIMIT %d) j WHERE j.request_id = $1 OR j.payload #>> '{payment,reference}' = $1 LIMIT $2`, SearchedJobs)), seeJob, false},
	{"job", jobs(` FROM jobs j WHERE j.user_id >= $1 AND j.user_id <= $1 ORDER BY j.user_id DESC, j.id DESC LIMIT $2`), seeJob, false},
	{"purchase", purchases(`p.id = $1 LIMIT $2`), seePurchase, true},
	{"purchase", purchases(`p.payment_reference >= $1 AND p.payment_reference <= $1 ORDER BY p.payment_reference DESC, p.id DESC LIMIT $2`), seePurchase, false},
	{"purchase", purchases(`p.user_id >= $1 AND p.user_id <= $1 ORDER BY p.user_id DESC, p.id DESC LIMIT $2`), seePurchase, false},
	{"payment", payments(`p.purchase_id = $1`), seePurchase, true},
	{"payment", payments(`p.intent_id = $1`), seePurchase, false},
	{"refund", refunds(`r.id = $1 OR r.purchase_id = $1`), seeRefund, true},
	{"refund", refunds(`r.provider_id = $1`), seeRefund, false},
	{"dispute", disputes(`d.purchase_id = $1`), seeBalance, true},
	{"dispute", disputes(`d.id = $1`), seeBalance, false},
	{"event of the provider", `SELECT e.id, CASE WHEN e.handled_at IS NULL THEN 'waits' ELSE 'handled' END, ` +
		facts(`'object', e.object_id, 'intent', e.intent_id, 'purchase', e.purchase_id, 'received', e.received_at`) + ` FROM payment_events e WHERE e.id = $1 LIMIT $2`, seeBalance, false},
	{"transaction of the provider", `SELECT b.id, '', ` + facts(`'source', b.source_id, 'intent', b.intent_id, 'purchase', b.purchase_id, 'day', b.day`) +
		` FROM balance_transactions b WHERE b.id = $1 OR b.intent_id = $1 OR b.source_id = $1 LIMIT $2`, seeBalance, false},
	{"discrepancy", discrepancies(`d.id = $1`), seeBalance, true},
	{"discrepancy", discrepancies(`d.object_id = $1 AND d.kind IN ('unknown-here', 'unknown-there', 'differs', 'unknown-category')`), seeBalance, false},
	{"campaign", `SELECT c.id::text, CASE WHEN c.paused_at IS NULL THEN c.state ELSE 'paused' END, ` +
		facts(`'name', c.name, 'total', c.positions_total, 'sold', c.positions_sold, 'reserved', c.positions_reserved`) + ` FROM campaigns c WHERE c.id = $1 LIMIT $2`, "GET /v1/campaigns/{}", true},
	{"draw", `SELECT c.id::text, CASE WHEN d.campaign_id IS NOT NULL THEN 'drawn' WHEN v.campaign_id IS NOT NULL THEN 'void announced' WHEN f.campaign_id IS NOT NULL THEN 'frozen' ELSE 'not frozen' END, ` +
		facts(`'waits_for', w.reason, 'faults', w.faults, 'retry', w.retry_at, 'claimed', c.execution_locked_at, 'claimed_by', c.execution_locked_by, 'voids', v.voids_at, 'drawn', d.executed_at`) + `
		FROM campaigns c LEFT JOIN freezes f ON f.campaign_id = c.id LEFT JOIN draws d ON d.campaign_id = c.id LEFT JOIN draw_waits w ON w.campaign_id = c.id
		LEFT JOIN draw_voids v ON v.campaign_id = c.id WHERE c.id = $1 AND c.draw_started_at IS NOT NULL LIMIT $2`, seeDraw, true},
	{"hold", holds(`h.id = $1`), seeHold, true},
	{"hold", holds(`h.user_id >= $1 AND h.user_id <= $1`), seeHold, false},
	{"wallet", wallets(`w.id = $1`), seeWallet, true},
	{"wallet", wallets(`w.owner_id = $1`), seeWallet, false},
	{"entry of wallets", `SELECT e.id::text, e.kind, ` + facts(`'from_wallet', e.debit_wallet, 'to_wallet', e.credit_wallet, 'amount', e.amount, 'currency', e.currency,
		'reference', e.reference, 'authorization', e.authorization_id, 'created', e.created_at`) + ` FROM ledger_entries e WHERE e.id = $1 LIMIT $2`, "the events of its wallets", true},
	{"authorization", `SELECT a.id::text, a.state, ` + facts(`'wallet', a.wallet_id, 'amount', a.amount, 'captured', a.captured, 'expires', a.expires_at`) +
		` FROM authorizations a WHERE a.id = $1 LIMIT $2`, "GET /v1/wallets/WALLET/authorizations/{}", true},
	{"webhook endpoint", `SELECT e.id::text, CASE WHEN e.deleted_at IS NOT NULL THEN 'deleted' WHEN e.disabled_at IS NOT NULL THEN 'disabled' ELSE 'enabled' END, ` +
		facts(`'client', e.client, 'made_by_key', e.made_by, 'disabled_because', e.disabled_reason, 'failures', e.failures, 'paused_until', e.paused_until,
		'last_attempt', a.at, 'last_answer', a.answer, 'next_attempt', (SELECT greatest(min(next_at), e.paused_until) FROM webhook_deliveries WHERE endpoint_id = e.id AND state = 'pending')`) +
		` FROM webhook_endpoints e LEFT JOIN LATERAL (
			SELECT a.at, concat_ws(': ', a.status, a.error) AS answer
			FROM (SELECT event_id FROM webhook_deliveries WHERE endpoint_id = e.id AND state = 'pending' ORDER BY next_at DESC LIMIT 100) d
			JOIN webhook_attempts a ON a.event_id = d.event_id AND a.endpoint_id = e.id ORDER BY a.at DESC, a.number DESC LIMIT 1) a ON true WHERE e.id = $1 LIMIT $2`, "GET /v1/webhook-endpoints/{}/deliveries", true},
	{"webhook event", `SELECT e.id::text, '', ` + facts(`'type', e.type, 'subject', e.subject, 'client', e.client, 'campaign', e.campaign_id, 'at', e.at`) +
		` FROM webhook_events e WHERE e.id = $1 LIMIT $2`, "GET /v1/webhook-events/{}", true},
	{"webhook delivery", `SELECT d.event_id::text, d.state, ` + facts(`'endpoint', d.endpoint_id, 'next', d.next_at, 'finished', d.finished_at`) + `
		FROM (SELECT id FROM webhook_endpoints ORDER BY id) e CROSS JOIN LATERAL (SELECT * FROM webhook_deliveries WHERE endpoint_id = e.id AND event_id = $1 OFFSET 0) d LIMIT $2`,
		"GET /v1/webhook-endpoints/ENDPOINT/deliveries/{}", true},
	{"key", `SELECT k.prefix, CASE WHEN k.revoked_at IS NULL THEN 'valid' ELSE 'revoked' END, ` + facts(`'client', k.client, 'role', k.role, 'created', k.created_at, 'last_used', k.last_used_at, 'revoked', k.revoked_at,
		'webhook_endpoints', (SELECT count(*) FROM webhook_endpoints e WHERE e.made_by = k.prefix AND e.deleted_at IS NULL)`) + ` FROM api_keys k WHERE k.prefix = $1 LIMIT $2`, "triprize key list", false},
	{"client", `SELECT c.name, '', ` + facts(`'role', c.role, 'valid_keys', (SELECT count(*) FROM api_keys k WHERE k.client = c.name AND k.revoked_at IS NULL)`) +
		` FROM api_clients c WHERE c.name = $1 LIMIT $2`, "triprize key list", false},
}
