//go:build failpoint

package wallet_test

import (
	"cmp"

	"pgregory.net/rapid"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/wallet"
)

// admit is what every movement must keep to.
func (w *world) admit(of int, d wallet.Movement, bounded bool) fault.Code {
	switch {
	case bounded && d.Amount < 1:
		return fault.InvalidRequest
	case d.IfVersion != nil && *d.IfVersion != w.want[of].version:
		return fault.VersionMismatch
	case w.used[d.Reference.Text]:
		return fault.StateConflict
	}
	return ""
}

// afford gives back what is over only when money is short.
func (w *world) afford(of int, amount money.Amount) fault.Code {
	m := w.want[of]
	if m.balance-m.held < amount {
		for _, h := range w.auth {
			if h.of == of {
				w.expire(h)
			}
		}
	}
	if m.balance-m.held < amount {
		return fault.InsufficientFunds
	}
	return ""
}

func (w *world) expire(h *authorization) {
	if h.active && h.over {
		w.move(h.of, 0, h.captured-h.amount, "")
		h.active = false
	}
}

func (w *world) move(of int, balance, held money.Amount, reference string) {
	m := w.want[of]
	m.balance, m.held, m.version = m.balance+balance, m.held+held, m.version+1
	if reference != "" {
		w.used[reference] = true
	}
}

func (w *world) credit(of int, d wallet.Movement) fault.Code {
	code := w.admit(of, d, true)
	if code == "" {
		w.move(of, d.Amount, 0, d.Reference.Text)
	}
	return code
}

// spend is what debits, transfers and authorizations have in common.
func (w *world) spend(of int, d wallet.Movement, do func()) fault.Code {
	code := w.admit(of, d, true)
	if code == "" {
		code = w.afford(of, d.Amount)
	}
	if code == "" {
		do()
	}
	return code
}

func (w *world) debit(of int, d wallet.Movement) fault.Code {
	return w.spend(of, d, func() { w.move(of, -d.Amount, 0, d.Reference.Text) })
}

func (w *world) transfer(from, to int, d wallet.Movement) fault.Code {
	if from == to || w.want[from].currency != w.want[to].currency {
		return fault.InvalidRequest
	}
	return w.spend(from, d, func() {
		w.move(from, -d.Amount, 0, d.Reference.Text)
		w.move(to, d.Amount, 0, d.Reference.Text)
	})
}

func (w *world) authorize(h *authorization, d wallet.Movement) fault.Code {
	return w.spend(h.of, d, func() { w.move(h.of, 0, d.Amount, d.Reference.Text) })
}

func (w *world) capture(of int, h *authorization, d wallet.Movement) fault.Code {
	if h.of != of {
		return fault.NotFound
	}
	d.Amount = cmp.Or(d.Amount, h.amount-h.captured)
	code := w.end(of, h, d, true)
	if code == "" && d.Amount > h.amount-h.captured {
		code = fault.StateConflict
	}
	if code == "" {
		w.move(of, -d.Amount, -d.Amount, d.Reference.Text)
		h.captured += d.Amount
		h.active = h.captured < h.amount
	}
	return code
}

func (w *world) void(of int, h *authorization, d wallet.Movement) fault.Code {
	if h.of != of {
		return fault.NotFound
	}
	code := w.end(of, h, d, false)
	if code == "" {
		w.move(of, 0, h.captured-h.amount, d.Reference.Text)
		h.active = false
	}
	return code
}

// end is what captures and voids have in common.
func (w *world) end(of int, h *authorization, d wallet.Movement, capture bool) fault.Code {
	if !capture || h.active {
		if code := w.admit(of, d, capture); code != "" {
			return code
		}
	}
	if w.expire(h); !h.active {
		return fault.StateConflict
	}
	return ""
}

// lapse lets the time of an authorization run out.
func (w *world) lapse(rt *rapid.T) {
	if len(w.auth) == 0 {
		return
	}
	if h := rapid.SampledFrom(w.auth).Draw(rt, "lapses"); h.active && !h.over {
		h.over = true
		lapse(w.t, w.db, h.id)
	}
}

func (w *world) sweep() {
	if _, err := w.at.Expire(w.t.Context(), nil, 1000); err != nil {
		w.t.Error(err)
	}
	for _, h := range w.auth {
		w.expire(h)
	}
}

func (w *world) check(rt *rapid.T) {
	for i, id := range w.ids {
		got, err := wallet.Get(w.t.Context(), w.db, access.Everything(), id)
		if err != nil {
			rt.Fatal(err)
		}
		if m := w.want[i]; got.Balance != m.balance || got.Held != m.held || got.Version != m.version {
			rt.Errorf("wallet %d has %d, %d held, version %d; the model %d, %d, %d", i, got.Balance, got.Held, got.Version, m.balance, m.held, m.version)
		}
	}
	for _, h := range w.auth {
		got, err := wallet.GetAuthorization(w.t.Context(), w.db, w.ids[h.of], h.id)
		if err != nil || got.Captured != h.captured || (got.State == wallet.Active) != h.active {
			rt.Errorf("an authorization is %+v, %v; the model %+v", got, err, h)
		}
	}
}
