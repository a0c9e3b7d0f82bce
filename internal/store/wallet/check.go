package wallet

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
)

// admit checks the rules for every movement, with any balance:
// first the request itself, then the version and the reference.
func (u *UnitOfWork) admit(a *account, kind Kind, m Movement) error {
	bound := MaxAmount
	if kind == KindPurchase || kind == KindRefund {
		bound = MaxBalance // many positions at once; the campaign bounds them
	}
	if m.Amount < 1 || m.Amount > bound {
		return invalid("/amount", fmt.Sprintf("must be 1 to %d minor units", bound))
	}
	return u.admitText(a, m)
}

// admitText is admit without the amount.
func (u *UnitOfWork) admitText(a *account, m Movement) error {
	if err := CheckDescription(m.Description); err != nil {
		return err
	}
	if err := checkText("/reference", m.Reference.Text, maxReference); err != nil {
		return err
	}
	if m.IfVersion != nil && *m.IfVersion != a.Version {
		return fault.New(fault.VersionMismatch, "the wallet has version %d, not %d", a.Version, *m.IfVersion)
	}
	if entry, used := u.references[m.Reference]; used {
		taken := fault.New(fault.StateConflict, "the reference %q was used for another movement", m.Reference.Text)
		taken.About = fault.About{Kind: fault.AboutEntry, ID: entry.String()}
		return taken
	}
	return nil
}

// afford checks that a wallet may spend an amount. If not, it ends the
// authorizations that are over and checks again.
func (u *UnitOfWork) afford(a *account, amount money.Amount) error {
	if a.Available() < amount {
		u.expireDue(a)
	}
	if a.Available() < amount {
		short := fault.New(fault.InsufficientFunds, "%s are available, and %s are needed",
			money.Currency(a.Currency).Format(a.Available()), money.Currency(a.Currency).Format(amount))
		short.About = fault.About{Kind: fault.AboutWallet, ID: a.ID.String()}
		return short
	}
	return nil
}

// room checks that a wallet can take an amount.
func (a *account) room(amount money.Amount) error {
	if a.Balance > MaxBalance-amount {
		return invalid("/amount", fmt.Sprintf("no wallet may have more than %d minor units", MaxBalance))
	}
	return nil
}

func checkTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return invalid("/ttl_seconds", fmt.Sprintf("must be %d to %d", int(MinTTL.Seconds()), int(MaxTTL.Seconds())))
	}
	return nil
}

// checkText refuses text that Postgres would refuse, so that one bad text does not
// fail all commands of the transaction. Text may be empty.
func checkText(pointer, text string, most int) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return invalid(pointer, "must be UTF-8 without NUL")
	}
	if utf8.RuneCountInString(text) > most {
		return invalid(pointer, fmt.Sprintf("must have at most %d characters", most))
	}
	return nil
}

// Check refuses an owner that no wallet can have.
func (o Owner) Check() error {
	if o.ID == "" {
		return invalid("/owner_id", "must have at least 1 character")
	}
	if err := checkText("/owner_id", o.ID, maxOwner); err != nil {
		return err
	}
	if _, err := money.ParseCurrency(o.Currency); err != nil {
		return invalid("/currency", "must be an ISO 4217 code in capitals")
	}
	return nil
}

// CheckDescription refuses a description that no entry can have.
func CheckDescription(text string) error { return checkText("/description", text, maxDescription) }

func invalid(pointer, detail string) error {
	return fault.Invalid(fault.Field{Pointer: pointer, Detail: detail})
}
