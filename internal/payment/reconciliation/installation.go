package reconciliation

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/postgres"
)

// Installation returns the id of this installation. The first call makes it: a database that
// has made nothing at a provider needs none, and has no days to be reconciled.
func Installation(ctx context.Context, db postgres.DB) (id uuid.UUID, err error) {
	err = db.QueryRow(ctx, `SELECT id FROM installation`).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = db.QueryRow(ctx, `INSERT INTO installation AS i DEFAULT VALUES ON CONFLICT (one) DO UPDATE SET id = i.id RETURNING id`).Scan(&id)
	}
	return id, fault.At(err, "reconciliation.Installation")
}

// Mark returns the provider with the id of our installation in the metadata of all that it
// makes. The id is read once; while it cannot be read, nothing is made, and the calls are
// unavailable.
func Mark(provider payprovider.Provider, db postgres.DB) payprovider.Provider {
	return &markedProvider{Provider: provider, db: db}
}

type markedProvider struct {
	payprovider.Provider
	db postgres.DB

	mu sync.Mutex
	id string // empty: not read yet
}

// CreateIntent implements payprovider.Provider.
func (m *markedProvider) CreateIntent(ctx context.Context, n payprovider.NewIntent) (payprovider.Intent, error) {
	if err := m.mark(ctx, "create", &n.Metadata); err != nil {
		return payprovider.Intent{}, err
	}
	return m.Provider.CreateIntent(ctx, n)
}

// CreateRefund implements payprovider.Provider.
func (m *markedProvider) CreateRefund(ctx context.Context, n payprovider.NewRefund) (payprovider.Refund, error) {
	if err := m.mark(ctx, "refund", &n.Metadata); err != nil {
		return payprovider.Refund{}, err
	}
	return m.Provider.CreateRefund(ctx, n)
}

func (m *markedProvider) mark(ctx context.Context, call string, metadata *map[string]string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.id == "" {
		id, err := Installation(ctx, m.db)
		if err != nil {
			return &payprovider.Error{Kind: payprovider.KindUnavailable, Call: call, Message: "the id of this installation cannot be read", Err: err}
		}
		m.id = id.String()
	}
	marked := map[string]string{payprovider.InstallationKey: m.id}
	maps.Copy(marked, *metadata)
	*metadata = marked
	return nil
}
