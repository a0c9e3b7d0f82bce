package wallet_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

// script has the wallets, authorizations and purchases of a test, by their names.
type script struct {
	t     *testing.T
	db    *pgxpool.Pool
	ids   map[string]uuid.UUID
	holds map[string]wallet.Authorization
}

// run runs the lines of a script. A line is a unit of work: commands about a wallet, another wallet, an
// authorization or a purchase, with an amount, a version (v1), and "!" and the code of the refusal. Or it
// says, behind "over", which authorizations are over, or, behind "=", what there is then.
func (s *script) run(lines string) {
	s.t.Helper()
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		if is, ok := strings.CutPrefix(line, "= "); ok {
			for want := range strings.SplitSeq(is, ", ") {
				if name, _, _ := strings.Cut(want, " "); s.is(name) != want {
					s.t.Errorf("%s; want %s", s.is(name), want)
				}
			}
		} else if over, ok := strings.CutPrefix(line, "over "); ok {
			for name := range strings.FieldsSeq(over) {
				lapse(s.t, s.db, s.holds[name].ID)
			}
		} else if line != "" {
			s.unit(strings.Split(line, "; "))
		}
	}
}

// is says what a wallet or an authorization is.
func (s *script) is(name string) string {
	s.t.Helper()
	if h, ok := s.holds[name]; ok {
		now, err := wallet.GetAuthorization(s.t.Context(), s.db, h.WalletID, h.ID)
		servers.NoError(s.t, err)
		return fmt.Sprintf("%s %s %d/%d", name, now.State, now.Captured, now.Amount)
	}
	w, err := wallet.Get(s.t.Context(), s.db, access.Everything(), s.ids[name])
	servers.NoError(s.t, err)
	return fmt.Sprintf("%s %d held %d v%d", name, w.Balance, w.Held, w.Version)
}

func (s *script) unit(commands []string) {
	s.t.Helper()
	var want wallet.ReadSet
	for _, h := range s.holds {
		want.Authorizations = append(want.Authorizations, h.ID)
	}
	for _, command := range commands {
		words := strings.Fields(command)
		if words[0] != "transfer" {
			words = words[:2]
		}
		for _, name := range words[1:min(len(words), 3)] {
			if s.ids[name] == uuid.Nil {
				s.ids[name] = withBalance(s.t, s.db, 0)
			}
			want.Wallets = append(want.Wallets, s.ids[name])
		}
	}
	with(s.t, s.db, want, func(u *wallet.UnitOfWork) {
		for _, command := range commands {
			words := strings.Fields(command)
			var refusal, other string
			var m wallet.Movement
			for _, word := range words[2:] {
				n, err := strconv.ParseInt(strings.TrimPrefix(word, "v"), 10, 64)
				switch {
				case word[0] == '!':
					refusal = word[1:]
				case err != nil:
					other = word
				case word[0] == 'v':
					m.IfVersion = &n
				default:
					m.Amount = money.Amount(n)
				}
			}
			if err := s.do(u, words[0], s.ids[words[1]], other, m); string(fault.CodeOf(err)) != refusal {
				s.t.Errorf("%s: %v", command, err)
			}
		}
	})
}

func (s *script) do(u *wallet.UnitOfWork, command string, id uuid.UUID, other string, m wallet.Movement) (err error) {
	hold := s.holds[other]
	switch command {
	case "credit":
		_, err = u.Credit(id, m)
	case "debit":
		_, err = u.Debit(id, m)
	case "pay":
		m.PurchaseID = uuid.NewSHA1(id, []byte(other))
		_, err = u.Pay(id, m)
	case "refund":
		m.PurchaseID = uuid.NewSHA1(id, []byte(other))
		_, err = u.Refund(id, m)
	case "transfer":
		_, err = u.Transfer(id, s.ids[other], m)
	case "authorize":
		if hold, err = u.Authorize(id, m, time.Hour); err == nil {
			s.holds[other] = hold
		}
	case "capture":
		_, err = u.Capture(id, hold.ID, m)
	case "void":
		_, err = u.Void(id, hold.ID, m)
	case "expire":
		var n int
		if n, err = u.ExpireDue(id); n != int(m.Amount) {
			s.t.Errorf("%d authorizations are ended, want %d", n, m.Amount)
		}
	default:
		s.t.Fatalf("what is %s?", command)
	}
	return err
}

func TestAUnitOfWorkDoesItsCommandsByTheRules(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for name, lines := range map[string]string{
		"commands see each other": `
			credit a 100
			pay a p 70; pay a q 31 !insufficient-funds; transfer a b 30; debit a 1 !insufficient-funds; debit b 30; refund a p 70
			= a 70 held 0 v4, b 0 held 0 v2`,
		"a caller decides on a version": `
			credit a 100; credit b 100
			debit a 1 v1; debit a 1 v1 !version-mismatch; transfer b a 1 v1
			= a 100 held 0 v3, b 99 held 0 v2`,
		"what is held cannot be spent": `
			credit a 100; authorize a h 60; transfer a b 1
			debit a 40 !insufficient-funds; transfer a b 40 !insufficient-funds; pay a p 40 !insufficient-funds; authorize a i 40 !insufficient-funds; debit a 39
			= a 60 held 60 v4, b 1 held 0 v1`,
		"a capture takes what is held in parts": `
			credit a 100; authorize a h 60
			capture a h 10; capture a h 51 !state-conflict
			= a 90 held 50 v3, h active 10/60
			capture a h; capture a h 1 !state-conflict; capture a h !state-conflict; void a h !state-conflict
			= a 40 held 0 v4, h captured 60/60`,
		"a void gives back the rest, in its own wallet": `
			credit a 100; authorize a h 60; credit b 100
			void b h !not-found; capture b h !not-found; capture a h 10; void a h
			= a 90 held 0 v4, b 100 held 0 v1, h voided 10/60`,
		"an authorization may begin and end in one unit": `
			credit a 100; authorize a h 30; capture a h 20; void a h; authorize a h 30; capture a h 20; void a h
			= a 60 held 0 v7, h voided 20/30`,
		"what is over is given back before a debit is refused": `
			credit a 100; authorize a h 50; authorize a i 20
			over h
			= a 100 held 70 v3, h active 0/50
			debit a 80
			= a 20 held 20 v5, h expired 0/50, i active 0/20`,
		"before a payment":        "credit a 100; authorize a h 50\nover h\npay a p 80\n= a 20 held 0 v4, h expired 0/50",
		"before a transfer":       "credit a 100; authorize a h 50\nover h\ntransfer a b 80\n= a 20 held 0 v4, h expired 0/50",
		"before an authorization": "credit a 100; authorize a h 50\nover h\nauthorize a i 80\n= a 100 held 80 v4, h expired 0/50",
		"what is over is not captured, and not ended without need": `
			credit a 100; authorize a h 30; authorize a i 30
			over h i
			debit a 40
			= a 60 held 60 v4
			capture a h 1 !state-conflict; void a h !state-conflict
			= a 60 held 30 v5, h expired 0/30, i active 0/30
			expire a 1; expire a 0
			= a 60 held 0 v6, i expired 0/30`,
		"a wallet has so many active authorizations at most": "credit a 1000" + strings.Repeat("; authorize a h 1", wallet.MaxActive) + `; authorize a i 1 !state-conflict
			authorize a i 1 !state-conflict
			over h
			authorize a i 1
			= a 1000 held 100 v103, h expired 0/1, i active 0/1`,
	} {
		t.Run(name, func(t *testing.T) {
			(&script{t, db, make(map[string]uuid.UUID), make(map[string]wallet.Authorization)}).run(lines)
		})
	}
	soundButForPurchases(t, db)
}
