package wallet

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
)

// Authorize holds money in a wallet until it is captured or voided, for at most ttl.
func (u *UnitOfWork) Authorize(id uuid.UUID, m Movement, ttl time.Duration) (Authorization, error) {
	a, err := u.account(id)
	if err != nil {
		return Authorization{}, err
	}
	if ttl < minTTL || ttl > maxTTL {
		return Authorization{}, invalid("/ttl_seconds", fmt.Sprintf("must be %d to %d", int(minTTL.Seconds()), int(maxTTL.Seconds())))
	}
	if err := u.admit(a, KindAuthorize, m); err != nil {
		return Authorization{}, err
	}
	if a.active >= maxActive {
		u.expireDue(a)
	}
	if a.active >= maxActive {
		return Authorization{}, fault.New(fault.StateConflict, "the wallet has %d active authorizations, which is the maximum", a.active)
	}
	if err := u.afford(a, m.Amount); err != nil {
		return Authorization{}, err
	}
	h := &authorization{inserted: true, Authorization: Authorization{ID: uuidv7.New(), WalletID: id, Amount: m.Amount, State: Active,
		Description: m.Description, CreatedAt: u.now, ExpiresAt: u.now.Add(ttl), Metadata: m.Metadata}}
	u.authorizations[h.ID] = h
	a.active++
	u.postHeld(KindAuthorize, a, h, m, leg{a, 0, m.Amount})
	return h.Authorization, nil
}

// Capture pays out what an authorization holds, or a part of it: then the rest stays
// held. Without an amount it pays out all that is left.
func (u *UnitOfWork) Capture(id, authorizationID uuid.UUID, m Movement) (Authorization, error) {
	a, h, err := u.held(id, authorizationID)
	if err != nil {
		return Authorization{}, err
	}
	if m.Amount == 0 {
		m.Amount = h.Remaining()
	}
	if h.State == Active {
		if err := u.admit(a, KindCapture, m); err != nil {
			return Authorization{}, err
		}
	}
	if err := u.usable(a, h); err != nil {
		return Authorization{}, err
	}
	if m.Amount > h.Remaining() {
		return Authorization{}, fault.New(fault.StateConflict, "the authorization has %d minor units left; %d were requested",
			h.Remaining(), m.Amount)
	}
	h.Captured += m.Amount
	if h.changed = true; h.Captured == h.Amount {
		u.end(a, h, Captured)
	}
	u.postHeld(KindCapture, a, h, m, leg{a, -m.Amount, -m.Amount})
	return h.Authorization, nil
}

// Void releases what an authorization holds. The amount of m is ignored.
func (u *UnitOfWork) Void(id, authorizationID uuid.UUID, m Movement) (Authorization, error) {
	a, h, err := u.held(id, authorizationID)
	if err != nil {
		return Authorization{}, err
	}
	if err := u.admitText(a, m); err != nil {
		return Authorization{}, err
	}
	if err := u.usable(a, h); err != nil {
		return Authorization{}, err
	}
	u.release(KindVoid, Voided, a, h, m)
	return h.Authorization, nil
}

// expireDue ends the authorizations of a wallet that are over, and returns how many.
func (u *UnitOfWork) expireDue(a *account) (expired int) {
	for _, h := range a.due {
		if h.State == Active {
			u.expire(a, h)
			expired++
		}
	}
	a.due = nil
	return expired
}

// expire uses a reference made from the authorization's id, so that it can happen
// only once.
func (u *UnitOfWork) expire(a *account, h *authorization) {
	u.release(KindExpire, Expired, a, h, Movement{Reference: Reference{Text: "expire/" + h.ID.String()}})
}

func (u *UnitOfWork) release(kind Kind, to AuthorizationState, a *account, h *authorization, m Movement) {
	m.Amount = h.Remaining()
	u.end(a, h, to)
	u.postHeld(kind, a, h, m, leg{a, 0, -m.Amount})
}

func (u *UnitOfWork) end(a *account, h *authorization, to AuthorizationState) {
	h.State, h.changed = to, true
	a.active--
}

// held returns a wallet and one of its authorizations.
func (u *UnitOfWork) held(id, authorizationID uuid.UUID) (*account, *authorization, error) {
	a, err := u.account(id)
	if err != nil {
		return nil, nil, err
	}
	h := u.authorizations[authorizationID]
	if h == nil || h.WalletID != id {
		return nil, nil, fault.New(fault.NotFound, "the wallet has no authorization %s", authorizationID)
	}
	return a, h, nil
}

// usable refuses an authorization that is not active. It first ends one that is over.
func (u *UnitOfWork) usable(a *account, h *authorization) error {
	if h.over(u.now) {
		u.expire(a, h)
	}
	if h.State != Active {
		return fault.New(fault.StateConflict, "the authorization is %s", h.State)
	}
	return nil
}

// postHeld posts an entry about an authorization. All such entries have the same
// sides: the wallet, and the account funding, where captured money goes.
func (u *UnitOfWork) postHeld(kind Kind, a *account, h *authorization, m Movement, l leg) {
	e := u.entry(kind, a.Currency, m)
	e.Debit.Wallet, e.Credit.Account, e.Authorization = a.ID, funding, h.ID
	u.post(e, l)
}
