package resource

import (
	"github.com/google/uuid"

	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/store/wallet"
)

// Wallet is a wallet as it is now.
func Wallet(w wallet.Wallet, who Role) contract.Wallet {
	d := contract.Wallet{ID: w.ID, OwnerID: w.Owner.ID, Currency: w.Currency, Balance: int64(w.Balance), Held: int64(w.Held),
		Available: int64(w.Available()), Version: w.Version, Metadata: metadataFor(w.Metadata, who)}
	if who.SeesMetadata() {
		d.Client = w.Client
	}
	return d
}

// Transfer is a transfer between two wallets.
func Transfer(e wallet.Entry, who Role) contract.Transfer {
	return contract.Transfer{ID: e.ID, From: e.Debit.Wallet, To: e.Credit.Wallet, Amount: int64(e.Amount), Currency: e.Currency,
		Description: e.Description, Reference: e.Reference.Text, CreatedAt: e.CreatedAt, Metadata: metadataFor(e.Metadata, who)}
}

// Authorization is an authorization as it is now.
func Authorization(a wallet.Authorization, who Role) contract.Authorization {
	return contract.Authorization{ID: a.ID, WalletID: a.WalletID, Amount: int64(a.Amount), Captured: int64(a.Captured),
		State: contract.AuthorizationState(a.State), Description: a.Description, ExpiresAt: a.ExpiresAt, CreatedAt: a.CreatedAt, Metadata: metadataFor(a.Metadata, who)}
}

// WalletEvent is what one entry of the ledger did to a wallet.
func WalletEvent(e wallet.Event, who Role) contract.WalletEvent {
	d := contract.WalletEvent{Version: e.Version, Kind: contract.WalletEventKind(e.Entry.Kind), EntryID: e.Entry.ID, DeltaBalance: int64(e.DeltaBalance),
		DeltaHeld: int64(e.DeltaHeld), Balance: int64(e.Balance), Held: int64(e.Held), From: sideJSON(e.Entry.Debit), To: sideJSON(e.Entry.Credit), Amount: int64(e.Entry.Amount),
		Reference: e.Entry.Reference.Text, Description: e.Entry.Description, Actor: roleFor(e.Entry.Actor, who), At: e.At, Metadata: metadataFor(e.Entry.Metadata, who)}
	if e.Entry.Authorization != uuid.Nil {
		d.AuthorizationID = &e.Entry.Authorization
	}
	if e.Entry.PurchaseID != uuid.Nil {
		d.PurchaseID = &e.Entry.PurchaseID
	}
	return d
}

// sideJSON names a side of an entry: a wallet by its id, an account by its name.
func sideJSON(s wallet.Side) string {
	if s.Wallet != uuid.Nil {
		return s.Wallet.String()
	}
	return string(s.Account)
}
