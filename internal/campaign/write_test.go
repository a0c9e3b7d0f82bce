package campaign_test

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// fullDraft is a draft that says something in every field.
func fullDraft() campaign.Draft {
	d := fixture.Draft(4)
	d.Name, d.Currency, d.PurchaseLimit = "A campaign with everything", "EUR", pointer(3)
	d.SaleStartsAt, d.SaleEndsAt = pointer(noon), pointer(noon.Add(time.Hour))
	d.Policies = campaign.Policies{Unsold: campaign.UnsoldCancel, CancellationUntil: &noon}
	d.PublicPage, d.EmbedOrigins = campaign.PublicPageEmbed, []string{"https://shop.example"}
	d.Layers[1].Prizes = nil
	d.Layers[3].Prizes = []campaign.PrizeGroup{{Name: "Gold", Count: 1}, {Name: "Silver", Count: 2}, {Name: "Gold", Count: 1}}
	return d
}

// create creates a pending campaign.
func create(t *testing.T, db *pgxpool.Pool, d campaign.Draft) uuid.UUID {
	t.Helper()
	id := uuidv7.New()
	servers.NoError(t, attempt(t, db, func(tx pgx.Tx) error { return campaign.Create(t.Context(), tx, id, d) }))
	return id
}

// expectDraft checks that a pending campaign is what its draft says.
func expectDraft(t *testing.T, db *pgxpool.Pool, id uuid.UUID, d campaign.Draft) {
	t.Helper()
	c := get(t, db, id)
	want := campaign.Campaign{ID: id, Draft: d, State: campaign.Pending, Counts: campaign.Counts{Total: d.Shape().Count()}, CreatedAt: c.CreatedAt}
	want.Layers = nil // they are read by themselves
	if !reflect.DeepEqual(c, want) || c.CreatedAt.IsZero() {
		t.Errorf("got %+v\nwant %+v", c, want)
	}
	layers, err := campaign.Layers(t.Context(), db, id)
	stored := slices.Clone(d.Layers)
	for i := range stored {
		stored[i].Positions = d.Shape().InLayer(i + 1) // those of a triangle are stored, too
	}
	if err != nil || !reflect.DeepEqual(layers, stored) {
		t.Errorf("got the layers %+v, %v\nwant %+v", layers, err, stored)
	}
}

func TestADraftIsStoredAsItIsAndReplacedWithNothingOfTheOldOneLeft(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	without := fixture.Draft(3)
	for i := range without.Layers {
		without.Layers[i].Prizes = nil
	}
	other, id := create(t, db, fullDraft()), create(t, db, without)
	expectDraft(t, db, id, without)
	for _, d := range []campaign.Draft{fixture.Draft(6), fixture.Draft(3), without, fullDraft()} {
		servers.NoError(t, attempt(t, db, func(tx pgx.Tx) error { return campaign.Replace(t.Context(), tx, id, d) }))
		expectDraft(t, db, id, d)
	}
	expectDraft(t, db, other, fullDraft())
	numbered := []fairdraw.Prize{{Number: 1, Layer: 1, Name: "A prize"}, {Number: 2, Layer: 3, Name: "A prize"},
		{Number: 3, Layer: 4, Name: "Gold"}, {Number: 4, Layer: 4, Name: "Silver"}, {Number: 5, Layer: 4, Name: "Silver"}, {Number: 6, Layer: 4, Name: "Gold"}}
	if got, err := campaign.Prizes(t.Context(), db, id); err != nil || !reflect.DeepEqual(got, numbered) {
		t.Errorf("got the prizes %+v, %v", got, err)
	}
}

func TestPublicationBindsTheCampaign(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := create(t, db, fullDraft())
	if _, bound, err := campaign.CommitmentOf(t.Context(), db, id); err != nil || bound {
		t.Errorf("before publication: %v, %v", bound, err)
	}
	want := campaign.Commitment{Rules: []byte(`{"b":1,"a":2}`), Commitment: make([]byte, 32)}
	servers.NoError(t, attempt(t, db, func(tx pgx.Tx) error { return campaign.Activate(t.Context(), tx, id, want) }))
	if got, bound, err := campaign.CommitmentOf(t.Context(), db, id); err != nil || !bound || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, %v", got, bound, err)
	}
	if c := get(t, db, id); c.State != campaign.Active || c.PublishedAt == nil || c.PausedAt != nil {
		t.Errorf("got %+v", c)
	}
}

// to is a new value; nil empties the field.
func to[T any](value *T) campaign.Optional[T] { return campaign.Optional[T]{Set: true, Value: value} }

func TestAnAmendmentOnlyWidens(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for _, c := range []struct {
		name    string
		limited bool // the campaign has a limit of 3 and ends at noon
		change  campaign.Patch
		allowed bool
	}{
		{"nothing", true, campaign.Patch{}, true},
		{"nothing, without limits", false, campaign.Patch{}, true},
		{"the name", true, campaign.Patch{Name: pointer("New")}, true},
		{"the name, without limits", false, campaign.Patch{Name: pointer("New")}, true},
		{"a higher limit", true, campaign.Patch{PurchaseLimit: to(pointer(4))}, true},
		{"the same limit", true, campaign.Patch{PurchaseLimit: to(pointer(3))}, true},
		{"a lower limit", true, campaign.Patch{PurchaseLimit: to(pointer(2))}, false},
		{"a limit where there was none", false, campaign.Patch{PurchaseLimit: to(pointer(1000))}, false},
		{"a later end", true, campaign.Patch{SaleEndsAt: to(pointer(noon.Add(time.Microsecond)))}, true},
		{"the same end", true, campaign.Patch{SaleEndsAt: to(&noon)}, true},
		{"an earlier end", true, campaign.Patch{SaleEndsAt: to(pointer(noon.Add(-time.Microsecond)))}, false},
		{"an end where there was none", false, campaign.Patch{SaleEndsAt: to(pointer(noon.AddDate(100, 0, 0)))}, false},
		{"all of it", true, campaign.Patch{Name: pointer("New"), PurchaseLimit: to(pointer(9)), SaleEndsAt: to(pointer(noon.Add(time.Hour)))}, true},
		{"no limit any more", true, campaign.Patch{PurchaseLimit: to[int](nil)}, true},
		{"no end any more", true, campaign.Patch{SaleEndsAt: to[time.Time](nil)}, true},
		{"all of it, but a lower limit", true, campaign.Patch{Name: pointer("New"), PurchaseLimit: to(pointer(2)), SaleEndsAt: to(pointer(noon.Add(time.Hour)))}, false},
		{"all of it, but an earlier end", true, campaign.Patch{Name: pointer("New"), PurchaseLimit: to(pointer(9)), SaleEndsAt: to(pointer(noon.Add(-time.Hour)))}, false},
	} {
		id := put(t, db, campaign.Active)
		if c.limited {
			exec(t, db, `UPDATE campaigns SET purchase_limit = 3, sale_ends_at = $2 WHERE id = $1`, id, noon)
		}
		want := get(t, db, id)
		err := attempt(t, db, func(tx pgx.Tx) error { return campaign.Amend(t.Context(), tx, id, c.change) })
		if c.allowed {
			want.Draft = want.Apply(c.change)
		}
		if c.allowed != (err == nil) || err != nil && fault.CodeOf(err) != fault.StateConflict {
			t.Errorf("%s: %v", c.name, err)
		}
		if after := get(t, db, id); !reflect.DeepEqual(after, want) {
			t.Errorf("%s: got %+v\nwant %+v", c.name, after, want)
		}
	}
}

func TestAPauseLastsFromTheFirstToTheResumption(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other := put(t, db, campaign.Active), put(t, db, campaign.Active)
	var paused []time.Time
	for i, step := range []struct {
		change func(context.Context, pgx.Tx, uuid.UUID) error
		paused bool
	}{{campaign.Resume, false}, {campaign.Pause, true}, {campaign.Pause, true}, {campaign.Resume, false}, {campaign.Pause, true}} {
		servers.NoError(t, attempt(t, db, func(tx pgx.Tx) error { return step.change(t.Context(), tx, id) }))
		c := get(t, db, id)
		if step.paused != (c.PausedAt != nil) || c.State != campaign.Active {
			t.Fatalf("step %d: %+v", i, c)
		}
		if step.paused {
			paused = append(paused, *c.PausedAt)
		}
	}
	if !paused[1].Equal(paused[0]) || !paused[2].After(paused[0]) {
		t.Errorf("paused at %v, at first twice", paused)
	}
	if get(t, db, other).PausedAt != nil {
		t.Error("another campaign was paused as well")
	}
}

// A local time with a Z behind it is enough: the sale would be over, and drawn, before it begins.
func TestNoCampaignIsPublishedWhoseSaleIsOver(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	now := servers.Value[time.Time](t, db, `SELECT clock_timestamp()`)
	for name, c := range map[string]struct {
		end  *time.Time
		over bool
	}{
		"an hour ago": {pointer(now.Add(-time.Hour)), true}, "now": {&now, true}, "an hour from now": {pointer(now.Add(time.Hour)), false}, "none": {nil, false},
	} {
		d := fixture.Draft(4)
		d.SaleEndsAt = c.end
		id := create(t, db, d)
		err := attempt(t, db, func(tx pgx.Tx) error { return campaign.Activate(t.Context(), tx, id, commitment()) })
		if state := get(t, db, id).State; !c.over && (err != nil || state != campaign.Active) || c.over && (fault.CodeOf(err) != fault.StateConflict || state != campaign.Pending) {
			t.Errorf("%s: %v, it is %s", name, err, state)
		}
		if c.over && (!strings.Contains(err.Error(), "sale_ends_at ("+c.end.UTC().Format(time.RFC3339)) || !strings.Contains(err.Error(), now.UTC().Format("(now 2006-01-02T15:")) && !strings.Contains(err.Error(), time.Now().UTC().Format("(now 2006-01-02T15:"))) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheEndOfASaleIsPutOffToATimeThatIsToCome(t *testing.T) {
	t.Parallel()
	db, id := servers.DB(t), uuid.Nil
	to := func(end time.Time) error {
		return attempt(t, db, func(tx pgx.Tx) error {
			return campaign.Amend(t.Context(), tx, id, campaign.Patch{SaleEndsAt: to(&end)})
		})
	}
	id = put(t, db, campaign.Active)
	ended := servers.Value[time.Time](t, db, `UPDATE campaigns SET sale_ends_at = clock_timestamp() - interval '2 hours' RETURNING sale_ends_at`)
	if err := to(ended.Add(time.Hour)); fault.CodeOf(err) != fault.StateConflict {
		t.Errorf("to an hour ago: %v", err)
	}
	if err := to(ended); err != nil {
		t.Errorf("as it is: %v", err)
	}
	if err := to(ended.Add(3 * time.Hour)); err != nil {
		t.Errorf("to an hour from now: %v", err)
	}
}
