package payment

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"triprize/internal/store/agenda"
)

// EndUnsent leads payments as far as they go without a provider, those that still have
// their versions and that no worker has. One that is given up and has no intent has
// ended: nothing can have been paid. It returns the payments whose end is known, for a
// transaction of the sale, and those that wait for a key.
func EndUnsent(ctx context.Context, tx pgx.Tx, items []agenda.Item) (known, waiting []Ref, err error) {
	purchases, versions := agenda.Split(items)
	var b pgx.Batch
	b.Queue(`SELECT FROM payments WHERE purchase_id = ANY($1) ORDER BY purchase_id FOR NO KEY UPDATE`, purchases) // the UPDATE alone has no order
	free := ` FROM payments p JOIN unnest($1::uuid[], $2::bigint[]) AS r (id, version) ON p.purchase_id = r.id AND p.version = r.version
		WHERE ` + Agenda.Free()
	read := func(into *[]Ref, condition string) {
		b.Queue(`SELECT `+refColumns+free+condition+` ORDER BY p.purchase_id`, purchases, versions).
			Query(func(rows pgx.Rows) (err error) {
				*into, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Ref])
				return err
			})
	}
	var ended []Ref
	read(&known, ` AND p.phase IN ('captured', 'ended')`)
	read(&waiting, ` AND p.finished_at IS NULL AND p.phase NOT IN ('captured', 'ended') AND NOT (`+unsent+`) AND p.waiting_for IS DISTINCT FROM 'operator'`)
	b.Queue(`
		UPDATE payments p SET phase = 'ended', version = p.version + 1, lease_until = NULL, `+waitsNoMore+`
		FROM (SELECT p.purchase_id`+free+` AND `+unsent+`) f WHERE p.purchase_id = f.purchase_id
		RETURNING `+refColumns, purchases, versions).
		Query(func(rows pgx.Rows) (err error) {
			ended, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Ref])
			return err
		})
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, nil, fmt.Errorf("payment.EndUnsent: %w", err)
	}
	return append(known, ended...), waiting, nil
}

// unsent is what was given up before anything was sent.
const unsent = `p.phase = 'expiring' AND p.intent_id IS NULL`
