package inventory

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
)

// HoldQuota limits how long one user holds one position without buying it, in all its holds
// and unpaid reservations of it together.
type HoldQuota struct {
	Max  time.Duration // the longest time; the user may hold it again after a Rest
	Rest time.Duration // without the position
}

const (
	// coolDown is the longest pause before a hold, after one that ended without a sale.
	coolDown = 10 * time.Second

	// maxExtensions is how often a hold can be extended.
	maxExtensions = 1
)

// HeldTime is how long a user has held a position lately.
type HeldTime struct {
	Held    time.Duration
	EndedAt time.Time     // the last hold or reservation
	Pause   time.Duration // before the next hold; coolDown bounds it
}

// HeldTimes are those of a user in a campaign, by position.
type HeldTimes map[shape.Position]HeldTime

func (h HeldTimes) add(p shape.Position, t HeldTime) {
	before := h[p]
	if before.EndedAt.After(t.EndedAt) {
		t.EndedAt, t.Pause = before.EndedAt, before.Pause
	}
	t.Held += before.Held
	h[p] = t
}

// Allowance is how long a user may hold which positions of a campaign.
type Allowance struct {
	HoldQuota
	HeldTimes HeldTimes     // lately
	Now       time.Time     // by the database's clock
	For       time.Duration // the least time of the new hold
	ByCard    bool          // it is a reservation: a buyer whose card was declined tries another without a pause
}

// again returns when the user may hold a position again, and false if it may now.
func (q Allowance) again(p shape.Position) (again time.Time, wait bool) {
	held, ok := q.HeldTimes[p]
	if !ok {
		return again, false
	}
	if !q.ByCard {
		again = held.EndedAt.Add(min(held.Pause, coolDown))
	}
	if rested := held.EndedAt.Add(q.Rest); held.Held+q.For > q.Max && rested.After(again) {
		again = rested
	}
	return again, again.After(q.Now)
}

// Avoid reports which positions exceed the quota of the user for a while; nil: none.
func (q Allowance) Avoid() func(shape.Position) bool {
	if len(q.HeldTimes) == 0 {
		return nil
	}
	return func(p shape.Position) bool { _, wait := q.again(p); return wait }
}

// Avoided counts these positions.
func (q Allowance) Avoided() (n int) {
	for p := range q.HeldTimes {
		if _, wait := q.again(p); wait {
			n++
		}
	}
	return n
}

// EndsBy returns the last deadline of a hold of these positions that began at a time.
func (q Allowance) EndsBy(began time.Time, picked []*FreePosition) time.Time {
	left := q.Max
	for _, f := range picked {
		if held, ok := q.HeldTimes[f.Position]; ok && held.EndedAt.Add(q.Rest).After(began) {
			left = min(left, q.Max-held.Held)
		}
	}
	return began.Add(left)
}

// Refuse returns a hold-limit-exceeded Error about chosen positions that exceed the quota of
// the user, nil if there are none. what is what the user may do later, at is the JSON pointer of
// the selection, and form names the positions.
func (q Allowance) Refuse(at string, positions []shape.Position, form shape.Shape, what string) error {
	if len(q.HeldTimes) == 0 {
		return nil
	}
	refusal := fault.New(fault.HoldLimitExceeded, "")
	var details []string
	for i, p := range positions {
		until, wait := q.again(p)
		if !wait {
			continue
		}
		if until.After(refusal.RetryAt) {
			refusal.RetryAt = until.UTC()
		}
		detail := fmt.Sprintf("this user has recently held %s, and may %s from %s on", form.Name(p), what, until.UTC().Format(millis))
		refusal.Fields, details = append(refusal.Fields, fault.Field{Pointer: fmt.Sprintf("%s/positions/%d", at, i), Detail: detail}), append(details, detail)
	}
	if len(details) == 0 {
		return nil
	}
	refusal.Message = strings.Join(details, "; ")
	return refusal
}

// QueueHeldTimes reads what may still count of users into their HeldTimes. What
// an expired hold adds counts before a sweep has ended the hold; the time before that
// hold ended a Rest and Most ago at the latest.
func QueueHeldTimes(b *pgx.Batch, quota HoldQuota, users []User, into map[User]HeldTimes) {
	var u User
	var p shape.Position
	var t HeldTime
	var held, pause float64
	campaigns, ids := columnsOf(users)
	b.Queue(`
		SELECT u.campaign_id, u.user_id, t.layer, t.col, t.held_seconds, t.ended_at, least(t.pause_seconds, $4)
		FROM unnest($1::uuid[], $2::text[]) AS u (campaign_id, user_id)
		CROSS JOIN LATERAL (
			SELECT layer, col, held_seconds, ended_at, pause_seconds FROM held_times
			WHERE campaign_id = u.campaign_id AND user_id = u.user_id AND ended_at > (SELECT clock_timestamp() - $3 * interval '1 second')
			UNION ALL
			SELECT (p ->> 'layer')::int, (p ->> 'column')::int, `+heldSeconds+`, h.expires_at, 'Infinity'
			FROM holds h CROSS JOIN LATERAL jsonb_array_elements(h.positions) p
			WHERE h.campaign_id = u.campaign_id AND h.user_id = u.user_id AND h.state = 'active' AND h.expires_at <= (SELECT clock_timestamp())) t`,
		campaigns, ids, max(quota.Rest+quota.Max, coolDown).Seconds(), coolDown.Seconds()).Query(postgres.Each(func() {
		t.Held, t.Pause = seconds(held), seconds(pause)
		into[u].add(p, t)
	}, &u.CampaignID, &u.ID, &p.Layer, &p.Column, &held, &t.EndedAt, &pause))
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// heldSeconds is how long hold h lasted.
const heldSeconds = `greatest(extract(epoch FROM least(h.ended_at, h.expires_at) - h.created_at), 0)::float8`

// queueAddHeldTimes adds the times of holds that have just ended, with n positions.
func queueAddHeldTimes(b *pgx.Batch, holds []uuid.UUID, n int) {
	b.Queue(`
		INSERT INTO held_times AS t (campaign_id, user_id, layer, col, held_seconds, ended_at, pause_seconds)
		SELECT h.campaign_id, h.user_id, (p ->> 'layer')::int, (p ->> 'column')::int, `+heldSeconds+`, least(h.ended_at, h.expires_at),
		       CASE WHEN h.state = 'released' THEN `+heldSeconds+` ELSE 'Infinity' END
		FROM holds h CROSS JOIN LATERAL jsonb_array_elements(h.positions) p WHERE h.id = ANY($1)
		ORDER BY 1, 2, 3, 4`+adding, holds).Exec(postgres.Exactly(n, "held times"))
}

// adding adds a time to those before.
const adding = `
		ON CONFLICT (campaign_id, user_id, layer, col) DO UPDATE
		SET held_seconds = t.held_seconds + excluded.held_seconds, ended_at = excluded.ended_at, pause_seconds = excluded.pause_seconds`

// QueueAddReservedTimes adds the times of reservations that end now. The pause before the next hold
// is as long as the reservation was.
func QueueAddReservedTimes(b *pgx.Batch, ended []Allocation) {
	var campaigns []uuid.UUID
	var users []string
	var layers, cols []int
	var since, reserved, deadlines []time.Time
	for _, u := range ended {
		for _, p := range u.Items {
			campaigns, users, layers, cols = append(campaigns, u.CampaignID), append(users, u.UserID), append(layers, p.Layer), append(cols, p.Column)
			since, reserved, deadlines = append(since, u.HeldSince), append(reserved, u.ReservedAt), append(deadlines, u.Deadline)
		}
	}
	b.Queue(`
		INSERT INTO held_times AS t (campaign_id, user_id, layer, col, held_seconds, ended_at, pause_seconds)
		SELECT u.campaign_id, u.user_id, u.layer, u.col, greatest(extract(epoch FROM least(n.now, u.deadline) - u.since), 0), n.now,
		       greatest(extract(epoch FROM n.now - u.reserved_at), 0)
		FROM unnest($1::uuid[], $2::text[], $3::int[], $4::int[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[])
		     AS u (campaign_id, user_id, layer, col, since, reserved_at, deadline), (SELECT clock_timestamp() AS now) n
		ORDER BY 1, 2, 3, 4`+adding, campaigns, users, layers, cols, since, reserved, deadlines).
		Exec(postgres.Exactly(len(campaigns), "held times"))
}

// mayHold is the condition under which user k.user_id may hold position p from
// k.created_at to k.expires_at: Allowance.Refuse, and a millisecond for rounding.
const mayHold = `NOT EXISTS (
	SELECT FROM held_times t
	WHERE t.campaign_id = p.campaign_id AND t.user_id = k.user_id AND t.layer = p.layer AND t.col = p.col
	  AND (t.ended_at + least(t.pause_seconds, $10) * interval '1 second' > k.created_at + interval '1 ms'
	       OR t.ended_at + $9 * interval '1 second' > k.created_at + interval '1 ms'
	          AND t.held_seconds + extract(epoch FROM k.expires_at - k.created_at) > $11 + 0.001))`

// mayReserve is the condition under which user s.user_id may reserve position p for
// s.seconds from now, if it is free: what a user holds, it may buy.
const mayReserve = ` AND (s.hold_id IS NOT NULL OR NOT EXISTS (
	SELECT FROM held_times t
	WHERE t.campaign_id = p.campaign_id AND t.user_id = s.user_id AND t.layer = p.layer AND t.col = p.col
	  AND t.ended_at + $11 * interval '1 second' > clock_timestamp() AND t.held_seconds + s.seconds > $12 + 0.001))`

// queueDropHeldTimesOf is queueDropHeldTimes for reservations of free positions.
func queueDropHeldTimesOf(b *pgx.Batch, sales []Allocation, now time.Time, quota HoldQuota) {
	var campaigns []uuid.UUID
	var layers, cols []int
	var users []string
	var created []time.Time
	for _, s := range sales {
		if s.HoldID != uuid.Nil { // its hold has done it
			continue
		}
		for _, f := range s.Picked {
			campaigns, layers, cols = append(campaigns, f.CampaignID), append(layers, f.Layer), append(cols, f.Column)
			users, created = append(users, s.UserID), append(created, now)
		}
	}
	if len(campaigns) > 0 {
		queueDropHeldTimes(b, quota, campaigns, layers, cols, users, created)
	}
}

// queueDropHeldTimes deletes the times that no longer count when their users hold the
// positions again.
func queueDropHeldTimes(b *pgx.Batch, quota HoldQuota, campaigns []uuid.UUID, layers, cols []int, users []string, created []time.Time) {
	b.Queue(`
		DELETE FROM held_times t
		USING unnest($1::uuid[], $2::int[], $3::int[], $4::text[], $5::timestamptz[]) AS k (campaign_id, layer, col, user_id, created_at)
		WHERE t.campaign_id = k.campaign_id AND t.user_id = k.user_id AND t.layer = k.layer AND t.col = k.col
		  AND t.ended_at <= k.created_at - $6 * interval '1 second'`,
		campaigns, layers, cols, users, created, max(quota.Rest, coolDown).Seconds())
}

// HoldQuotaOf returns how long one user holds one position: as long as one hold that is
// extended as often as is allowed, in however many holds and unpaid reservations. After
// that it leaves the position to others for as long as a hold may last.
func HoldQuotaOf(settings config.Holds) HoldQuota {
	return HoldQuota{Max: settings.MaxTTL * (1 + maxExtensions), Rest: settings.MaxTTL}
}
