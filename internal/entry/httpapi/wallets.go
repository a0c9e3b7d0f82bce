package httpapi

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/job"
	"triprize/internal/wallet"
)

// versionOf returns the version that If-Match names; the contract has checked its form.
func versionOf(ifMatch *string) *int64 {
	if ifMatch == nil {
		return nil
	}
	version, _ := strconv.ParseInt(strings.Trim(response.StrongTag(*ifMatch), `"`), 10, 64)
	return &version
}

func (s *server) execute(ctx context.Context, kind job.Kind, given contract.Metadata, action wallet.Action) (response.Result, error) {
	if err := call.CheckMetadata(given); err != nil {
		return response.Result{}, err
	}
	request := s.command(ctx, kind)
	request.UserID, request.Owner, action.Actor = action.Owner.ID, action.Owner.Client, call.Of(ctx).Signature() // of a new wallet
	done, err := s.wallets.Do(ctx, wallet.Command{Action: action, Request: request, Who: call.Of(ctx).Grant()})
	return s.commandDone(ctx, done, err)
}

func (s *server) OpenWallet(ctx context.Context, r operations.OpenWalletRequestObject) (operations.Answer, error) {
	if r.Body.Client != "" && call.Of(ctx).Role != resource.Operator {
		return nil, fault.New(fault.Forbidden, "only an operator may open a wallet for another client; omit client")
	}
	return s.execute(ctx, job.KindWalletOpen, r.Body.Metadata, wallet.Action{Owner: wallet.Owner{Client: r.Body.Client, ID: r.Body.OwnerID, Currency: r.Body.Currency},
		Movement: wallet.Movement{Amount: money.Amount(r.Body.InitialBalance), Description: r.Body.Description, Metadata: metadata.Map(r.Body.Metadata)}})
}

func (s *server) CreditWallet(ctx context.Context, r operations.CreditWalletRequestObject) (operations.Answer, error) {
	b := r.Body
	return s.execute(ctx, job.KindWalletCredit, b.Metadata, wallet.Action{Kind: wallet.KindCredit, Wallet: r.Wallet, Movement: details(b.Amount, b.Description, b.Reference, b.Metadata, r.Params.IfMatch)})
}

func (s *server) DebitWallet(ctx context.Context, r operations.DebitWalletRequestObject) (operations.Answer, error) {
	b := r.Body
	return s.execute(ctx, job.KindWalletDebit, b.Metadata, wallet.Action{Kind: wallet.KindDebit, Wallet: r.Wallet, Movement: details(b.Amount, b.Description, b.Reference, b.Metadata, r.Params.IfMatch)})
}

func details(amount int64, description, reference string, given contract.Metadata, ifMatch *string) wallet.Movement {
	return wallet.Movement{Amount: money.Amount(amount), Description: description, Reference: wallet.Reference{Text: reference}, Metadata: metadata.Map(given), IfVersion: versionOf(ifMatch)}
}

func (s *server) Transfer(ctx context.Context, r operations.TransferRequestObject) (operations.Answer, error) {
	b := r.Body
	return s.execute(ctx, job.KindTransferCreate, b.Metadata,
		wallet.Action{Kind: wallet.KindTransfer, Wallet: b.From, To: b.To, Movement: details(b.Amount, b.Description, b.Reference, b.Metadata, r.Params.IfMatch)})
}

func (s *server) Authorize(ctx context.Context, r operations.AuthorizeRequestObject) (operations.Answer, error) {
	b := r.Body
	ttl := cmp.Or(time.Duration(b.ExpiresInSeconds)*time.Second, s.settings.Wallets.AuthorizationTTL)
	return s.execute(ctx, job.KindAuthorizationCreate, b.Metadata, wallet.Action{Kind: wallet.KindAuthorize, Wallet: r.Wallet, TTL: ttl,
		Movement: details(b.Amount, b.Description, b.Reference, b.Metadata, r.Params.IfMatch)})
}

func (s *server) CaptureAuthorization(ctx context.Context, r operations.CaptureAuthorizationRequestObject) (operations.Answer, error) {
	b := r.Body
	return s.execute(ctx, job.KindAuthorizationCapture, b.Metadata, wallet.Action{Kind: wallet.KindCapture, Wallet: r.Wallet, Authorization: r.Authorization,
		Movement: details(b.Amount, b.Description, b.Reference, b.Metadata, r.Params.IfMatch)})
}

func (s *server) VoidAuthorization(ctx context.Context, r operations.VoidAuthorizationRequestObject) (operations.Answer, error) {
	b := r.Body
	return s.execute(ctx, job.KindAuthorizationVoid, b.Metadata, wallet.Action{Kind: wallet.KindVoid, Wallet: r.Wallet, Authorization: r.Authorization,
		Movement: details(0, b.Description, b.Reference, b.Metadata, r.Params.IfMatch)})
}

// walletDocuments makes the bodies of the answers to wallet commands, which only apps and
// operators give.
var walletDocuments = wallet.Documents{
	Wallet:        func(w wallet.Wallet) any { return resource.Wallet(w, resource.App) },
	Transfer:      func(e wallet.Entry) any { return resource.Transfer(e, resource.App) },
	Authorization: func(a wallet.Authorization) any { return resource.Authorization(a, resource.App) },
}

func (s *server) GetWallet(ctx context.Context, r operations.GetWalletRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	w, err := wallet.Get(ctx, s.db, who.Grant(), r.Wallet)
	return sendFunc(func(c *fiber.Ctx) error {
		c.Set(fiber.HeaderETag, response.VersionTag(w.Version))
		return c.JSON(resource.Wallet(w, who.Role))
	}), err
}

func (s *server) ListWallets(ctx context.Context, r operations.ListWalletsRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if !who.MayActFor(r.Params.OwnerID) {
		return nil, fault.New(fault.NotFound, "there is no owner %s", r.Params.OwnerID)
	}
	limit := response.PageSize(r.Params.Limit)
	list, err := wallet.OfOwner(ctx, s.db, who.Grant(), r.Params.OwnerID, response.ValueOf(r.Params.Currency), response.ValueOf(r.Params.Cursor), limit+1)
	list, next := response.Cut(list, limit, func(last wallet.Wallet) uuid.UUID { return last.ID })
	return operations.ListWallets200(contract.WalletList{NextCursor: next,
		Wallets: response.Documents(list, func(w wallet.Wallet) contract.Wallet { return resource.Wallet(w, who.Role) })}, err)
}

func (s *server) GetAuthorization(ctx context.Context, r operations.GetAuthorizationRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if _, err := wallet.Get(ctx, s.db, who.Grant(), r.Wallet); err != nil {
		return nil, err
	}
	a, err := wallet.GetAuthorization(ctx, s.db, r.Wallet, r.Authorization)
	return operations.GetAuthorization200(resource.Authorization(a, who.Role), err)
}

// ListWalletEvents answers with one page of a wallet's history: upward with
// from_version, else newest first. A client keeps from_version in the query of the
// following pages.
func (s *server) ListWalletEvents(ctx context.Context, r operations.ListWalletEventsRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	w, err := wallet.Get(ctx, s.db, who.Grant(), r.Wallet)
	if err != nil {
		return nil, err
	}
	page := wallet.Page{Limit: response.PageSize(r.Params.Limit), Upward: r.Params.FromVersion != nil, From: response.ValueOf(r.Params.FromVersion)}
	if r.Params.Cursor != nil {
		page.From, err = strconv.ParseInt(*r.Params.Cursor, 10, 64)
		if err != nil {
			return nil, err // not possible: the contract was checked
		}
	}
	events, err := wallet.History(ctx, s.db, w.ID, page)
	if err != nil {
		return nil, err
	}
	answer := contract.WalletEventPage{Events: response.Documents(events, func(e wallet.Event) contract.WalletEvent { return resource.WalletEvent(e, who.Role) })}
	if n := len(events); n == page.Limit {
		next := events[n-1].Version - 1
		if page.Upward {
			next = events[n-1].Version + 1
		}
		if next >= 1 && next <= w.Version { // upward, the list ends with the version just read
			answer.NextCursor = new(strconv.FormatInt(next, 10))
		}
	}
	return operations.ListWalletEvents200(answer, nil)
}
