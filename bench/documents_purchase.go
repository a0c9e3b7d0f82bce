package main

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	errLayerEmpty = errors.New("no available positions in this layer")
	errLimit      = errors.New("purchase limit exceeded")
)

// purchase is purchasePosition of the documents. The payment costs nothing here, and
// the check whether a draw is due is left out. Both make the documents faster.
func (c *client) purchase(ctx context.Context, user uuid.UUID, layer int, request string) error {
	position, err := c.allocate(ctx, user, layer, request)
	if err != nil {
		return err
	}
	if _, err := c.pool.Exec(ctx, `
		UPDATE purchases
		SET payment_intent_id = $1,
		    status = 'completed',
		    completed_at = NOW()
		WHERE position_id = $2`, "pi_"+request, position); err != nil {
		return err
	}
	_, err = c.pool.Exec(ctx, `
		UPDATE positions
		SET status = 'sold'
		WHERE position_id = $1`, position)
	return err
}

// allocate is allocatePosition of the documents, a round trip for each statement.
func (c *client) allocate(ctx context.Context, user uuid.UUID, layer int, request string) (uuid.UUID, error) {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return uuid.Nil, err
	}
	defer conn.Release()
	position, err := c.inTransaction(ctx, conn, user, layer, request)
	if err != nil {
		_, _ = conn.Exec(ctx, `ROLLBACK`) // when that fails the pool closes the connection
	}
	return position, err
}

func (c *client) inTransaction(ctx context.Context, conn *pgxpool.Conn, user uuid.UUID, layer int, request string) (position uuid.UUID, err error) {
	if _, err := conn.Exec(ctx, `BEGIN TRANSACTION ISOLATION LEVEL `+c.isolation); err != nil {
		return position, err
	}
	if _, err := conn.Exec(ctx, `SET LOCAL lock_timeout = 3000`); err != nil {
		return position, err
	}
	var count int
	if err := conn.QueryRow(ctx, `
		SELECT COUNT(*) as count
		FROM purchases
		WHERE campaign_id = $1
		  AND user_id = $2
		  AND status IN ('pending', 'completed')`, c.campaign, user).Scan(&count); err != nil {
		return position, err
	}
	var limit *int
	if err := conn.QueryRow(ctx, `SELECT purchase_limit FROM campaigns WHERE campaign_id = $1`, c.campaign).Scan(&limit); err != nil {
		return position, err
	}
	if limit != nil && count >= *limit {
		return position, errLimit
	}
	return c.reserve(ctx, conn, user, layer, request)
}

// reserve is the second half of the transaction: pick, reserve, record, count.
func (c *client) reserve(ctx context.Context, conn *pgxpool.Conn, user uuid.UUID, layer int, request string) (position uuid.UUID, err error) {
	var layerNumber, rowNumber, colNumber, price int
	err = conn.QueryRow(ctx, `
		SELECT position_id, layer_number, row_number, col_number, price
		FROM positions
		WHERE campaign_id = $1
		  AND layer_number = $2
		  AND status = 'available'
		ORDER BY RANDOM()
		LIMIT 1
		FOR UPDATE SKIP LOCKED`, c.campaign, layer).Scan(&position, &layerNumber, &rowNumber, &colNumber, &price)
	if errors.Is(err, pgx.ErrNoRows) {
		return position, errLayerEmpty
	}
	if err != nil {
		return position, err
	}
	if _, err := conn.Exec(ctx, `
		UPDATE positions
		SET status = 'reserved',
		    user_id = $1,
		    reserved_at = NOW()
		WHERE position_id = $2`, user, position); err != nil {
		return position, err
	}
	if _, err := conn.Exec(ctx, `
		INSERT INTO purchases (
		  purchase_id, user_id, campaign_id, position_id,
		  price, status, request_id, created_at
		) VALUES (
		  gen_random_uuid(), $1, $2, $3, $4, 'pending', $5, NOW()
		)`, user, c.campaign, position, price, request); err != nil {
		return position, err
	}
	if _, err := conn.Exec(ctx, `
		UPDATE campaigns
		SET positions_sold = positions_sold + 1
		WHERE campaign_id = $1`, c.campaign); err != nil {
		return position, err
	}
	_, err = conn.Exec(ctx, `COMMIT`)
	return position, err
}
