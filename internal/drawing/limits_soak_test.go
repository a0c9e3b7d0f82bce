//go:build soak

package drawing_test

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/drawing"
	"triprize/internal/drawing/progress"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// timed logs how long something takes. It fails by what it does, never by the time.
func timed(t *testing.T, what string, do func() error) {
	t.Helper()
	began := time.Now()
	if err := do(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	t.Logf("%-44s %7.0f ms; the process has used %d MiB at most", what, float64(time.Since(began).Microseconds())/1000, peak(t))
}

// peak returns the most memory that this process has had so far, in MiB.
func peak(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0 // only Linux tells it
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	kib, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
	servers.NoError(t, err)
	return kib >> 10
}

// sellAll sells a campaign without the sale: each position to a buyer of its own.
func sellAll(t *testing.T, db *pgxpool.Pool, id uuid.UUID) job.Ref {
	t.Helper()
	ref := job.Ref{CampaignID: id}
	in(t, db, func(tx pgx.Tx) error {
		servers.Exec(t, tx, `SET LOCAL statement_timeout = 0`) // before the batch: one timeout runs for a whole batch
		var b pgx.Batch
		b.Queue(`
			INSERT INTO purchases (id, campaign_id, user_id, client, amount, currency, payment_method, nonce, state, completed_at)
			SELECT gen_random_uuid(), $1, 'buyer-' || layer || '-' || col, 'shop', price, 'JPY', 'external', uuid_send(gen_random_uuid()), 'completed', clock_timestamp()
			FROM positions WHERE campaign_id = $1`, id)
		b.Queue(`
			UPDATE positions s SET state = 'sold', user_id = p.user_id, purchase_id = p.id, sold_at = clock_timestamp(), version = 1
			FROM purchases p WHERE s.campaign_id = $1 AND p.campaign_id = $1 AND p.user_id = 'buyer-' || s.layer || '-' || s.col`, id)
		b.Queue(`INSERT INTO purchase_items (purchase_id, layer, col, price) SELECT purchase_id, layer, col, price FROM positions WHERE campaign_id = $1`, id)
		b.Queue(`UPDATE campaigns SET positions_sold = positions_total WHERE id = $1`, id)
		if err := tx.SendBatch(t.Context(), &b).Close(); err != nil {
			return err
		}
		return campaign.StartDraw(t.Context(), tx, id)
	})
	servers.Exec(t, db, `ANALYZE`)
	request := job.Request{ID: uuidv7.New(), Client: "ops", Kind: job.KindDraw, CampaignID: id, Retention: time.Hour}
	request.Key = request.ID.String()
	ref.ID = fixture.Accept(t, db, request)[0].ID
	return ref
}

// The largest campaign that there can be: every step within the times that statements and
// requests have by default.
func TestSoakHalfAMillionPositionsAndAThousandPrizes(t *testing.T) {
	settings := servers.Settings(t)
	db := servers.Pool(t, settings)
	draft := fixture.Draft(shape.MaxBaseLength) // a prize in each layer
	id := uuidv7.New()
	service := lifecycle.New(fixture.Gate(db), fixture.Key(t), shape.MaxPositions, nil, func(lifecycle.Details) any { return nil })
	request := func(kind job.Kind) job.Request {
		r := job.Request{ID: uuidv7.New(), Client: "ops", Kind: kind, CampaignID: id, Retention: time.Hour}
		r.Key = r.ID.String()
		return r
	}
	timed(t, "creation", func() error {
		_, err := service.Create(t.Context(), request(job.KindCampaignCreate), draft)
		return err
	})
	timed(t, "publication", func() error { _, err := service.Publish(t.Context(), request(job.KindCampaignPublish)); return err })
	timed(t, "a campaign with its counts", func() error { _, err := lifecycle.Get(t.Context(), db, id); return err })
	timed(t, "the board", func() error { _, err := inventory.All(t.Context(), db, id); return err })
	ref := sellAll(t, db, id)
	timed(t, "freeze and draw", func() error { drawn(t, newDrawer(t, db), ref); return nil })
	timed(t, "a campaign with its counts, sold", func() error { _, err := lifecycle.Get(t.Context(), db, id); return err })
	timed(t, "what a stream tells", func() error { _, err := progress.Read(t.Context(), db, []uuid.UUID{id}); return err })
	timed(t, "the state of the draw", func() error { _, err := drawing.ProofStateOf(t.Context(), db, id); return err })
	proofs := drawing.NewProofs(db)
	timed(t, "the proof", func() error {
		document, err := proofs.Document(t.Context(), id)
		if err != nil {
			return err
		}
		return document.Write(t.Context(), io.Discard)
	})
	timed(t, "the list", func() error {
		document, err := proofs.List(t.Context(), id)
		if err != nil {
			return err
		}
		return document.Write(t.Context(), io.Discard)
	})
	t.Logf("the stored list has %s", servers.Value[string](t, db, `SELECT pg_size_pretty(pg_total_relation_size('freeze_subtrees'))`))
	reader, writer := io.Pipe()
	timed(t, "the proof, read back", func() error {
		go func() {
			document, err := proofs.Document(t.Context(), id)
			if err == nil {
				err = document.Write(t.Context(), writer)
			}
			_ = writer.CloseWithError(err)
		}()
		var tree fairdraw.Tree
		p, err := fairdraw.ReadProof(reader, tree.Append)
		if err == nil && (tree.Root() != p.Root || tree.Count() != shape.TriangleCount(shape.MaxBaseLength) || len(p.Winners) != shape.MaxBaseLength) {
			t.Errorf("%d lines with the root %s, %d winners", tree.Count(), tree.Root(), len(p.Winners))
		}
		return err
	})
	some, err := postgres.Collect(t.Context(), db, pgx.RowTo[uuid.UUID], `SELECT id FROM purchases WHERE campaign_id = $1 LIMIT 1`, id)
	servers.NoError(t, err)
	timed(t, "the proof of a purchase", func() error {
		own := purchaseOf(t, db, some[0])
		_, err := proofs.Purchase(t.Context(), own)
		return err
	})
	if most := peak(t); most > 500 {
		t.Errorf("the process has used %d MiB", most)
	}
}
