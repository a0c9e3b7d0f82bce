package reconciliation

import (
	"context"
	"maps"
	"sync"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/balance"
)

// Mark returns the provider with the id of our installation in the metadata of all that it
// makes. The id is read once; while it cannot be read, nothing is made, and the calls are
// unavailable.
func Mark(provider payprovider.Provider, db postgres.DB) payprovider.Provider {
	return &marked{Provider: provider, db: db}
}

type marked struct {
	payprovider.Provider
	db postgres.DB

	mu sync.Mutex
	id string // empty: not read yet
}

// CreateIntent implements payprovider.Provider.
func (m *marked) CreateIntent(ctx context.Context, n payprovider.NewIntent) (payprovider.Intent, error) {
	metadata, err := m.mark(ctx, "create", n.Metadata)
	if err != nil {
		return payprovider.Intent{}, err
	}
	n.Metadata = metadata
	return m.Provider.CreateIntent(ctx, n)
}

// CreateRefund implements payprovider.Provider.
func (m *marked) CreateRefund(ctx context.Context, n payprovider.NewRefund) (payprovider.Refund, error) {
	metadata, err := m.mark(ctx, "refund", n.Metadata)
	if err != nil {
		return payprovider.Refund{}, err
	}
	n.Metadata = metadata
	return m.Provider.CreateRefund(ctx, n)
}

func (m *marked) mark(ctx context.Context, call string, metadata map[string]string) (map[string]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.id == "" {
		id, err := balance.Installation(ctx, m.db)
		if err != nil {
			return nil, &payprovider.Error{Kind: payprovider.KindUnavailable, Call: call, Message: "the id of this installation cannot be read", Err: err}
		}
		m.id = id.String()
	}
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = make(map[string]string)
	}
	metadata[payprovider.InstallationKey] = m.id
	return metadata, nil
}
