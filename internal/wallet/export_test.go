package wallet

import (
	"time"

	"github.com/google/uuid"
)

// The limits, and functions that tests call alone.
const (
	MaxActive  = maxActive
	MaxAmount  = maxAmount
	MaxBalance = maxBalance
	MinTTL     = minTTL
	MaxTTL     = maxTTL
)

// Expire is what the sweep repeats.
var Expire = expire

// ExpireDue ends the authorizations of a wallet that are over, and returns how many.
func (u *UnitOfWork) ExpireDue(id uuid.UUID) (int, error) {
	a, err := u.account(id)
	if err != nil {
		return 0, err
	}
	return u.expireDue(a), nil
}

// Waiting is an executor that waits for wallets for as long as limit.
func (e *Executor) Waiting(limit time.Duration) *Executor {
	e.rowWait = limit
	return e
}
