package campaign

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

const draftColumns = `name, base_length, currency, purchase_limit, sale_starts_at, sale_ends_at, policies, positions_total`

// draftValues are the id and the values of draftColumns. A shape that is no triangle has no base length.
func draftValues(id uuid.UUID, d Draft, form shape.Shape) []any {
	return []any{id, d.Name, postgres.Nullable(form.BaseLength()), d.Currency, d.PurchaseLimit, d.SaleStartsAt, d.SaleEndsAt, d.Policies, form.Count()}
}

// Create stores a checked draft as a pending campaign.
func Create(ctx context.Context, tx pgx.Tx, id uuid.UUID, d Draft) error {
	form := d.Shape()
	_, err := tx.Exec(ctx, `INSERT INTO campaigns (id, `+draftColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`, draftValues(id, d, form)...)
	if err != nil {
		return fmt.Errorf("campaign.Create: %w", err)
	}
	if err := cmp.Or(Describe(ctx, tx, id, d.Metadata), Open(ctx, tx, id, d)); err != nil {
		return err
	}
	return insertLayers(ctx, tx, id, d.Layers, form)
}

// Replace writes a checked draft over a pending campaign.
func Replace(ctx context.Context, tx pgx.Tx, id uuid.UUID, d Draft) error {
	form := d.Shape()
	err := change(ctx, tx, "the campaign is no longer pending", `
		UPDATE campaigns SET (`+draftColumns+`) = ($2, $3, $4, $5, $6, $7, $8, $9) WHERE id = $1 AND state = 'pending'`, draftValues(id, d, form)...)
	if err != nil {
		return err
	}
	if err := cmp.Or(Describe(ctx, tx, id, d.Metadata), Open(ctx, tx, id, d)); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM layers WHERE campaign_id = $1`, id); err != nil { // takes the prizes along
		return fmt.Errorf("campaign.Replace: %w", err)
	}
	return insertLayers(ctx, tx, id, d.Layers, form)
}

func insertLayers(ctx context.Context, tx pgx.Tx, id uuid.UUID, layers []Layer, form shape.Shape) error {
	var numbers, positions, firsts, prizeNumbers, prizeLayers []int
	var labels, aisles, names []string
	var prices []int64 // minor units
	for _, l := range layers {
		numbers, prices, labels = append(numbers, l.Layer), append(prices, int64(l.Price)), append(labels, l.Label)
		positions, firsts = append(positions, form.InLayer(l.Layer)), append(firsts, form.First(l.Layer))
		aisles = append(aisles, arrayText(l.Aisles))
		for _, group := range l.Prizes {
			for range group.Count {
				prizeNumbers = append(prizeNumbers, len(prizeNumbers)+1)
				prizeLayers, names = append(prizeLayers, l.Layer), append(names, group.Name)
			}
		}
	}
	var b pgx.Batch
	b.Queue(`
		INSERT INTO layers (campaign_id, layer, price, positions, first_number, label, aisles)
		SELECT $1, l.layer, l.price, l.positions, l.first_number, nullif(l.label, ''), l.aisles::int[]
		FROM unnest($2::int[], $3::bigint[], $4::int[], $5::int[], $6::text[], $7::text[]) AS l (layer, price, positions, first_number, label, aisles)`,
		id, numbers, prices, positions, firsts, labels, aisles)
	b.Queue(`INSERT INTO prizes (campaign_id, number, layer, name) SELECT $1, * FROM unnest($2::int[], $3::int[], $4::text[])`,
		id, prizeNumbers, prizeLayers, names)
	return fault.At(tx.SendBatch(ctx, &b).Close(), "campaign.insertLayers")
}

// arrayText is the text of an array in SQL: unnest would take an array of arrays apart.
func arrayText(columns []int) string {
	text := []byte{'{'}
	for i, c := range columns {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(c), 10)
	}
	return string(append(text, '}'))
}

// Amend changes an active campaign: its name, a higher purchase limit or none, a
// later end of the sale or none. A lower limit or an earlier end is a
// state-conflict Error, and so is any other end when the draw is bound to it.
func Amend(ctx context.Context, tx pgx.Tx, id uuid.UUID, p Patch) error {
	if faults := checkTime(p.SaleEndsAt.Value, "/sale_ends_at"); faults != nil {
		return fault.Invalid(faults...)
	}
	const refused = "while a campaign is active its purchase limit can only be raised and its end only be put off, to a time that is still to come; the end of a sale cannot change at all when what is sold by then is drawn (policies.unsold: draw)"
	return change(ctx, tx, refused, `
		UPDATE campaigns
		SET name = coalesce($2, name),
		    purchase_limit = CASE WHEN $5 THEN NULL ELSE coalesce($3, purchase_limit) END,
		    sale_ends_at   = CASE WHEN $6 THEN NULL ELSE coalesce($4, sale_ends_at) END
		WHERE id = $1 AND state = 'active'
		  AND ($3::integer IS NULL OR $3 >= purchase_limit)
		  AND ($4::timestamptz IS NULL OR $4 = sale_ends_at OR $4 > sale_ends_at AND $4 > clock_timestamp())
		  AND (draws_at IS NULL OR NOT $6 AND coalesce($4 = draws_at, true))`,
		id, p.Name, p.PurchaseLimit.Value, p.SaleEndsAt.Value, p.PurchaseLimit.Set && p.PurchaseLimit.Value == nil, p.SaleEndsAt.Set && p.SaleEndsAt.Value == nil)
}

// Rename changes the name, in any state.
func Rename(ctx context.Context, tx pgx.Tx, id uuid.UUID, name string) error {
	return change(ctx, tx, "there is no such campaign", `UPDATE campaigns SET name = $2 WHERE id = $1`, id, name)
}

// Activate moves a pending campaign to active and stores its commitment. The caller has locked the
// campaign. One whose sale would be over is a state-conflict Error.
func Activate(ctx context.Context, tx pgx.Tx, id uuid.UUID, c Commitment) error {
	err := change(ctx, tx, "only a pending campaign can be published", `
		UPDATE campaigns SET state = 'active', published_at = clock_timestamp()
		WHERE id = $1 AND state = 'pending' AND (sale_ends_at IS NULL OR sale_ends_at > clock_timestamp())`, id)
	if fault.CodeOf(err) == fault.StateConflict {
		return cmp.Or(checkEnd(ctx, tx, id), err)
	}
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO commitments (campaign_id, rules, commitment) VALUES ($1, $2, $3)`, id, string(c.Rules), c.Commitment)
	return fault.At(err, "campaign.Activate")
}

// checkEnd returns a state-conflict Error when the end of a sale is not in the future.
func checkEnd(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	var end, now time.Time
	err := tx.QueryRow(ctx, `SELECT sale_ends_at, clock_timestamp() FROM campaigns WHERE id = $1 AND state = 'pending' AND sale_ends_at <= clock_timestamp()`, id).Scan(&end, &now)
	if found, err := postgres.Found(err); !found {
		return fault.At(err, "campaign.checkEnd")
	}
	return fault.New(fault.StateConflict, "sale_ends_at (%s) is not in the future (now %s); change sale_ends_at, then publish",
		end.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
}

// BindEnd binds the draw of a pending campaign to the end of its sale, for ever:
// everything sold by then is drawn.
func BindEnd(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	return change(ctx, tx, "a campaign whose unsold positions do not keep it from its draw needs sale_ends_at",
		`UPDATE campaigns SET draws_at = sale_ends_at WHERE id = $1 AND state = 'pending' AND sale_ends_at IS NOT NULL`, id)
}

// Pause stops the sale of an active campaign; pausing twice is no error.
func Pause(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	return change(ctx, tx, "only an active campaign can be paused",
		`UPDATE campaigns SET paused_at = coalesce(paused_at, clock_timestamp()) WHERE id = $1 AND state = 'active'`, id)
}

// Resume continues the sale of a paused campaign; resuming twice is no error.
func Resume(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	return change(ctx, tx, "only an active campaign can be resumed", `UPDATE campaigns SET paused_at = NULL WHERE id = $1 AND state = 'active'`, id)
}

// change runs an UPDATE of a campaign. It returns a state-conflict Error when no row matched its guard.
func change(ctx context.Context, tx pgx.Tx, refused, sql string, args ...any) error {
	tag, err := tx.Exec(ctx, sql, args...)
	if err == nil && tag.RowsAffected() != 1 {
		err = fault.New(fault.StateConflict, "%s", refused)
	}
	return fault.At(err, "campaign")
}

// Describe replaces the metadata of a campaign, in any state. They have a table of their own,
// because every sale writes the campaign's row. The caller has locked the campaign, or has just
// made it.
func Describe(ctx context.Context, tx pgx.Tx, id uuid.UUID, m metadata.Map) (err error) {
	if text := m.Text(); text == nil {
		_, err = tx.Exec(ctx, `DELETE FROM campaign_metadata WHERE campaign_id = $1`, id)
	} else {
		_, err = tx.Exec(ctx, `
			INSERT INTO campaign_metadata (campaign_id, metadata) VALUES ($1, $2)
			ON CONFLICT (campaign_id) DO UPDATE SET metadata = excluded.metadata`, id, text)
	}
	return fault.At(err, "campaign.Describe(%s)", id)
}

// Open opens or closes the public page of a campaign, in any state, as a checked draft says. The caller has locked
// the campaign, or has just made it.
func Open(ctx context.Context, tx pgx.Tx, id uuid.UUID, d Draft) (err error) {
	switch d.PublicPage {
	case PublicPagePage, PublicPageEmbed:
		_, err = tx.Exec(ctx, `
			INSERT INTO public_pages (campaign_id, embed_origins) VALUES ($1, coalesce($2::text[], '{}'))
			ON CONFLICT (campaign_id) DO UPDATE SET embed_origins = excluded.embed_origins`, id, d.EmbedOrigins)
	default:
		_, err = tx.Exec(ctx, `DELETE FROM public_pages WHERE campaign_id = $1`, id)
	}
	return fault.At(err, "campaign.Open(%s)", id)
}
