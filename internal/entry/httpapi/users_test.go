package httpapi_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/shape"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/key"
	users "triprize/internal/person"
	"triprize/internal/platform/audit"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

// erase asks for an erasure and waits for its job.
func erase(s *fleet.System, credential, user string, body fleet.Fields, header ...string) fleet.Answer {
	s.T.Helper()
	return sendOrder(s, credential, "/v1/users/"+url.PathEscape(user)+"/erase", body, append([]string{"Prefer", fleet.UntilFinal}, header...)...)
}

// came is how many rows the audit finds whose users were erased.
func came(s *fleet.System) int {
	s.T.Helper()
	found, err := audit.Check(s.T.Context(), s.DB, users.Invariants(keyring.NewHasher(s.Settings.Draw.SecretKey, "")), 10)
	servers.NoError(s.T, err)
	return len(found)
}

// A person buys by card, wallet and outside, is refunded, holds, and is told of; then it is copied, erased, and comes back.
func TestAnErasedUserIsNowhereAndTheBooksStayEqual(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Sandbox: &stripesim.Settings{}})
	const mina, tail, secret = `<mina> & "O'Hara"/4711@mail.example`, "4711@mail.example", "Ward 7, bed 3" // JSON spells the head in several ways
	note := fleet.Fields{"note": secret}
	told := s.Execute("/v1/webhook-endpoints", fleet.Fields{"url": "https://receiver.example/x", "events": []string{"*"}})
	mustAnswer(t, "an endpoint", told, http.StatusCreated)
	exec(s, `UPDATE webhook_endpoints SET verified_at = clock_timestamp(), paused_until = 'infinity'`)
	wallet := s.Execute("/v1/wallets", fleet.Fields{"owner_id": mina, "currency": "JPY", "metadata": note})
	mustAnswer(t, "a wallet", wallet, http.StatusCreated)
	path := "/v1/wallets/" + wallet.ID.String()
	mustAnswer(t, "a credit", sendOrder(s, s.Operator, path+"/credit", fleet.Fields{"amount": 5000, "reference": secret, "description": secret, "metadata": note}, "Triprize-Reason", url.PathEscape("for "+mina)), 200)
	held := s.Execute(path+"/authorizations", fleet.Fields{"amount": 100, "description": secret, "metadata": note})
	mustAnswer(t, "a hold of money", s.Execute(path+"/authorizations/"+held.ID.String()+"/capture", fleet.Fields{"amount": 60, "description": secret}), 200)
	mustAnswer(t, "what is left", s.Execute(path+"/authorizations/"+held.ID.String()+"/void", nil), 200)
	campaign, other := s.Campaign(3), s.Campaign(3)
	order := func(payment fleet.Fields, at ...shape.Position) fleet.Answer {
		return s.Execute("/v1/campaigns/"+campaign.String()+"/purchases", fleet.Fields{"user_id": mina, "metadata": note, "payment": payment, "selection": fleet.Fields{"positions": at}}, "Prefer", fleet.UntilFinal)
	}
	outside := order(fleet.Fields{"method": "external", "reference": secret}, shape.Position{Layer: 1, Column: 1}, shape.Position{Layer: 2, Column: 1})
	mustAnswer(t, "outside", outside, 200, `"succeeded"`)
	mustAnswer(t, "by wallet", order(fleet.Fields{"method": "wallet"}, shape.Position{Layer: 2, Column: 2}), 200, `"succeeded"`)
	card := order(fleet.Fields{"method": "card", "payment_method": "pm_card_visa", "return_url": "https://shop.example/?of=" + url.QueryEscape(mina)}, shape.Position{Layer: 3, Column: 1})
	mustAnswer(t, "by card", card, 200, `"succeeded"`)
	back := order(fleet.Fields{"method": "card", "payment_method": "pm_card_visa"}, shape.Position{Layer: 3, Column: 2})
	mustAnswer(t, "by card, cancelled", sendOrder(s, s.Operator, "/v1/purchases/"+back.ID.String()+"/cancel", fleet.Fields{"reason": secret}, "Prefer", fleet.UntilFinal, "Triprize-Reason", "Ward%207%2C%20bed%203"), 200, `"succeeded"`)
	mustAnswer(t, "a part", s.Execute("/v1/purchases/"+outside.ID.String()+"/cancel", fleet.Fields{"reason": secret, "positions": []shape.Position{{Layer: 2, Column: 1}}}, "Prefer", fleet.UntilFinal), 200, `"succeeded"`)
	byOperator := s.MustHold(fleet.HoldOrder{Campaign: other, User: mina, Quantity: 1}).ID
	mustAnswer(t, "extended", sendOrder(s, s.Operator, "/v1/holds/"+byOperator.String()+"/extend", fleet.Fields{}, "Triprize-Reason", "for%20"+url.PathEscape(mina)), 200)
	mustAnswer(t, "released by an operator", s.Do(0, s.Operator, http.MethodDelete, "/v1/holds/"+byOperator.String(), map[string]string{"Triprize-Reason": url.PathEscape(secret)}, nil), 204)
	exec(s, `DELETE FROM holds WHERE id = $1`, byOperator) // as after its retention
	hold := s.MustHold(fleet.HoldOrder{Campaign: other, User: mina, Quantity: 1})
	once := func() fleet.Answer {
		return sendOrder(s, s.App, "/v1/wallets", fleet.Fields{"owner_id": mina, "currency": "EUR"}, "Idempotency-Key", "once")
	}
	mustAnswer(t, "another wallet", once(), http.StatusCreated)
	mustAnswer(t, "what fails", order(fleet.Fields{"method": "external", "reference": secret}, shape.Position{Layer: 1, Column: 1}), 200, `"failed"`)

	// What is open is named, and nothing is erased.
	reason := fleet.Fields{"reason": "asked by " + mina + ", ticket 1"}
	wantAnswer(t, "with what is open", erase(s, s.App, mina, reason), coded("state-conflict"), "holds "+hold.ID.String(), "wallets "+wallet.ID.String(), "purchases "+card.ID.String())
	mustAnswer(t, "released", s.Release(s.App, hold.ID), 204)
	s.Buy(fleet.Order{Campaign: campaign, User: "otto", Quantity: 3, Wait: true})
	s.AwaitDrawn(campaign)
	balance := s.Read(path)
	mustAnswer(t, "spent", s.Execute(path+"/debit", fleet.Fields{"amount": decoded[contract.Wallet](s, balance).Balance}), 200)
	servers.Eventually(t, "refunds are over", func() bool {
		return count(s, `SELECT count(*) FROM refunds WHERE state NOT IN ('succeeded', 'resolved') AND number IS NOT NULL`) == 0 || count(s, `SELECT count(*) FROM refunds WHERE method = 'external' AND state = 'listed'`) > 0
	})
	listed, err := postgres.Collect(t.Context(), s.DB, pgx.RowTo[uuid.UUID], `SELECT id FROM refunds WHERE method = 'external' AND state = 'listed'`)
	servers.NoError(t, err)
	for _, id := range listed {
		mustAnswer(t, "resolved", s.Execute("/v1/refunds/"+id.String()+"/resolve", fleet.Fields{"amount": count(s, `SELECT amount FROM refunds WHERE id = $1`, id), "reason": secret}), 200)
	}
	servers.Eventually(t, "no event waits", func() bool { return count(s, `SELECT count(*) FROM payment_events WHERE handled_at IS NULL`) == 0 })
	servers.Eventually(t, "refunds are over", func() bool {
		return count(s, `SELECT count(*) FROM refunds WHERE state NOT IN ('succeeded', 'resolved') AND number IS NOT NULL`) == 0
	})
	exec(s, `UPDATE webhook_events SET payload = json_build_object('data', json_build_object('user_id', $1::text, 'nonce', 'n')) WHERE subject IN (SELECT id FROM purchases WHERE user_id = $1)`, mina) // as it was sent

	// The copy has each row that names the user or has what the app has noted.
	copied := s.Do(0, s.App, http.MethodGet, "/v1/users/"+url.PathEscape(mina)+"/data", nil, nil)
	mustAnswer(t, "the copy", copied, 200, `"host":"receiver.example"`, without("nonce"), without("request_hash"), without(`"rank"`))
	data := decoded[contract.UserData](s, copied)
	for _, one := range fixture.RowsWith(t, s.DB, tail) {
		table, _, _ := strings.Cut(one, " ")
		n := 0
		for _, d := range data.Data {
			for _, row := range d.Rows {
				if d.Table == table && strings.Contains(fmt.Sprint(row), tail) {
					n++
				}
			}
		}
		if fmt.Sprint(table, " ", n) != one && table != "wallet_events" {
			t.Errorf("of %s the copy has %d", one, n)
		}
	}
	list, proof := s.Read("/v1/campaigns/"+campaign.String()+"/draw/list"), s.Read("/v1/campaigns/"+campaign.String()+"/draw/proof")
	mustAnswer(t, "its proof", s.Read("/v1/purchases/"+card.ID.String()+"/proof"), 200)

	a := erase(s, s.App, mina, reason, "Idempotency-Key", "erase "+mina[1:5])
	mustAnswer(t, "erased", a, 200, `"succeeded"`, `"purchases":4`)
	wantAnswer(t, "the same request", erase(s, s.App, mina, reason, "Idempotency-Key", "erase "+mina[1:5]), 200, a.ID.String(), isReplayed)
	wantAnswer(t, "with the key of a request of the user", once(), 422, coded("idempotency-key-reused"))
	wantAnswer(t, "a job of the user", s.Do(0, s.App, http.MethodGet, "/v1/jobs/"+card.ID.String(), nil, nil), 200, `"state":"failed"`, `"code":"gone"`)
	for _, text := range []string{mina, tail, secret} {
		wantEqual(t, "what has "+text, strings.Join(fixture.RowsWith(t, s.DB, text), ", "), "")
	}
	wantEqual(t, "events that would be rendered", count(s, `SELECT count(*) FROM webhook_events e WHERE payload IS NULL AND subject IN (SELECT id FROM purchases WHERE nonce IS NULL)`), 0)
	for _, key := range s.Redis.Keys(t.Context(), "*").Val() {
		if dump := s.Redis.Dump(t.Context(), key).Val(); strings.Contains(key+dump, tail) || strings.Contains(dump, secret) {
			t.Errorf("Redis has it at %s", key)
		}
	}
	wantAnswer(t, "the proof of the purchase", s.Read("/v1/purchases/"+card.ID.String()+"/proof"), http.StatusGone, coded("gone"))
	wantAnswer(t, "the purchase", s.Read("/v1/purchases/"+card.ID.String()), 200, `"nonce":null`, `"user_id":"erased-`)
	wantAnswer(t, "money for the wallet", s.Execute(path+"/credit", fleet.Fields{"amount": 1}), coded("state-conflict"), "was erased")
	wantAnswer(t, "money from another's", s.Execute("/v1/transfers", fleet.Fields{"from": fleet.WalletID(s.Wallet("otto", 5)), "to": wallet.ID, "amount": 1}), coded("state-conflict"), "was erased")
	wantEqual(t, "the list", string(s.Read("/v1/campaigns/"+campaign.String()+"/draw/list").Body), string(list.Body))
	wantEqual(t, "the proof of the draw", string(s.Read("/v1/campaigns/"+campaign.String()+"/draw/proof").Body), string(proof.Body))
	fixture.Sound(t, s.DB)
	wantAnswer(t, "the trail", s.Do(0, s.Operator, http.MethodGet, "/v1/audit-trail?operation=eraseUser", nil, nil), 200, `"target":"`+a.ID.String(), `"client":"shop"`, without("4711"))
	wantEqual(t, "rows of erased users", came(s), 0)
	mustAnswer(t, "again", erase(s, s.App, mina, reason), 200, `{"erased":{}}`)
	exec(s, `UPDATE purchases SET user_id = $1 WHERE id = $2`, mina, card.ID) // as from a backup
	wantEqual(t, "rows of erased users", came(s), 1)
	exec(s, `UPDATE purchases p SET user_id = s.user_id FROM positions s WHERE s.purchase_id = p.id AND p.id = $1`, card.ID)
	wantAnswer(t, "comes back", s.Buy(fleet.Order{Campaign: other, User: mina, Wait: true}), 200, `"succeeded"`)
}

// Who may name whom, and what is said of what cannot be.
func TestWhoseUserIsCopiedAndErased(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	shop, kiosk := s.App, s.NewKey("kiosk")
	mina := s.User("mina") + " (née O'Hara)/4711"
	sendOrder(s, shop, "/v1/wallets", fleet.Fields{"owner_id": mina, "currency": "JPY"})
	sendOrder(s, kiosk, "/v1/wallets", fleet.Fields{"owner_id": mina, "currency": "JPY", "initial_balance": 5})
	path := "/v1/users/" + url.PathEscape(mina)
	read := func(credential, query string) fleet.Answer {
		return s.Do(0, credential, http.MethodGet, path+"/data"+query, nil, nil)
	}
	at := func(client string) string { return `"client": "` + s.Client(client) + `"` }
	wantAnswer(t, "its own", read(shop, ""), 200, at("shop"), without(at("kiosk")))
	wantAnswer(t, "another's", read(kiosk, ""), 200, at("kiosk"), without(at("shop")))
	wantAnswer(t, "an app names a client", read(shop, "?client="+s.Client("kiosk")), 403, "omit client")
	wantAnswer(t, "an operator names none", read(s.Operator, ""), 400, "?client")
	wantAnswer(t, "an operator names one", read(s.Operator, "?client="+s.Client("shop")), 200, at("shop"), without(at("kiosk")))
	wantAnswer(t, "an operator names all", read(s.Operator, "?client=all"), 200, at("shop"), at("kiosk"))
	for text, body := range map[string]fleet.Fields{"/reason": {"reason": " ", "client": "all"}, "/client": {"reason": "asked"}} {
		wantAnswer(t, "without "+text, sendOrder(s, s.Operator, path+"/erase", body), 400, text)
	}
	wantAnswer(t, "an unknown client", read(s.Operator, "?client=shpo"), 404, "there is no client")
	wantAnswer(t, "an unknown client, to erase", sendOrder(s, s.Operator, path+"/erase", fleet.Fields{"reason": "asked", "client": "shpo"}), 404, "there is no client")
	wantAnswer(t, "a pseudonym", sendOrder(s, shop, "/v1/users/erased-"+uuid.NewString()+"/erase", fleet.Fields{"reason": "asked"}), coded("state-conflict"), "pseudonym")
	wantAnswer(t, "an app names another", sendOrder(s, shop, path+"/erase", fleet.Fields{"reason": "asked", "client": "all"}), 403)
	wantAnswer(t, "a user", sendOrder(s, fleet.TokenFor(t, mina, ""), path+"/erase", fleet.Fields{"reason": "asked"}), 403)
	wantAnswer(t, "with money at one of all", sendOrder(s, s.Operator, path+"/erase", fleet.Fields{"reason": "asked", "client": "all"}), coded("state-conflict"), "wallets ", "5 JPY")
	for _, id := range []string{"..", "a b", "100%", strings.Repeat("x", 128), "nobody"} {
		wantAnswer(t, "nobody: "+id, sendOrder(s, shop, "/v1/users/"+url.PathEscape(id)+"/erase", fleet.Fields{"reason": "asked"}, "Prefer", fleet.UntilFinal), 200, `{"erased":{}}`)
	}
	wantAnswer(t, "what is longer", sendOrder(s, shop, "/v1/users/"+strings.Repeat("a", 129)+"/erase", fleet.Fields{"reason": "asked"}), 404)
	wantAnswer(t, "at one of two", sendOrder(s, shop, path+"/erase", fleet.Fields{"reason": "asked"}, "Prefer", fleet.UntilFinal), 200, `{"erased":{`, `"wallets":1`)
	wantAnswer(t, "at the other", read(kiosk, ""), 200, at("kiosk"))
	wantAnswer(t, "at none", read(shop, ""), 200, without(at("shop")+","))
}

// The console copies and erases whom Find has named, whatever the id is.
func TestTheConsoleCopiesAndErasesAUser(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	b, mina := signIn(s), s.User("mina")+" & Söhne/4711"
	wallet := s.Wallet(mina, 0)
	query := url.QueryEscape(mina)
	wantAnswer(t, "found", b.get("/find?q="+query), 200, `formaction="/console/users/erase"`, html.EscapeString(mina), fleet.WalletID(wallet))
	wantAnswer(t, "its client", b.get("/find?q="+query), 200, `name="client" value="`+s.Client("shop")+`"`)
	wantAnswer(t, "what is found without spaces", b.get("/find?q=+"+query), 200, fleet.WalletID(wallet), without("users/erase"))
	wantAnswer(t, "the copy", b.get("/users/data?client="+s.Client("shop")+"&user="+query), 200, `"user_id": "`+mina, valued{"Content-Disposition", `attachment; filename="user.json"`})
	wantAnswer(t, "without a client", b.get("/users/data?user="+query), 400, "?client")
	form := "/users/erase?user=" + query
	wantAnswer(t, "the form", b.get(form+"&client="+s.Client("shop")), 200, `value="`+s.Client("shop")+`"`, "cannot be undone")
	wantAnswer(t, "what was not typed", b.post(form, "once", "1", "/client", s.Client("shop"), "/reason", "asked"), 400, "type exactly")
	wantAnswer(t, "without a reason", b.post(form, "once", "2", "/client", s.Client("shop"), "typed", mina), 400, "is required")
	done := b.post(form, "once", "3 "+s.User(""), "/client", s.Client("shop"), "/reason", "asked", "typed", mina)
	mustAnswer(t, "erased", done, http.StatusSeeOther)
	wantAnswer(t, "its job", b.ended(done.Header.Get("Location")), "succeeded")
	wantAnswer(t, "not found", b.get("/find?q="+query), 200, "Nothing is named")
	s.Operator = s.NewKeyOf(key.Viewer, "bi")
	wantAnswer(t, "a viewer's", signIn(s).get("/find?q="+query), 200, without("users/erase"))
}

// Until the job is final nothing is accepted for its user at its client, and what is accepted is done once.
func TestAUserThatIsBeingErasedGetsNothing(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina, kiosk := s.User("mina"), s.NewKey("kiosk")
	id := s.Campaign(3)
	ask := func(key string) fleet.Answer {
		return sendOrder(s, s.App, "/v1/users/"+mina+"/erase", fleet.Fields{"reason": "asked"}, "Idempotency-Key", key)
	}
	mustAnswer(t, "asked", ask("once"), 202)
	wantAnswer(t, "again", ask("once"), 202, isReplayed)
	wantAnswer(t, "two", ask("twice"), coded("state-conflict"), "being erased")
	wantAnswer(t, "a purchase", s.Buy(fleet.Order{Campaign: id, User: mina, Key: "buy"}), coded("state-conflict"), "being erased")
	wantAnswer(t, "a hold", s.Hold(fleet.HoldOrder{Campaign: id, User: mina, Quantity: 1}).Answer, coded("state-conflict"))
	wantAnswer(t, "a wallet", s.Execute("/v1/wallets", fleet.Fields{"owner_id": mina, "currency": "JPY"}), coded("state-conflict"))
	wantAnswer(t, "by an operator, at all", sendOrder(s, s.Operator, "/v1/users/"+mina+"/erase", fleet.Fields{"reason": "asked", "client": "all"}), coded("state-conflict"), "being erased")
	bought := adopted(s, fixture.Buy(t, s.DB, id, mina, 0, 1)) // of another client until now
	wantAnswer(t, "its cancellation by an operator", sendOrder(s, s.Operator, "/v1/purchases/"+bought.String()+"/cancel", fleet.Fields{"reason": "asked"}), coded("state-conflict"), "being erased")
	wantAnswer(t, "a wallet by an operator", sendOrder(s, s.Operator, "/v1/wallets", fleet.Fields{"owner_id": mina, "currency": "JPY", "client": s.Client("shop")}), coded("state-conflict"), "being erased")
	wantAnswer(t, "another user", s.Buy(fleet.Order{Campaign: id, User: s.User("otto")}), 202)
	wantAnswer(t, "the copy of who waits", s.Do(0, s.App, http.MethodGet, "/v1/users/"+s.User("otto")+"/data", nil, nil), 200, `"state": "queued"`)
	exec(s, `INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, user_id, payload, expires_at) SELECT gen_random_uuid(), $1, 'e' || n, sha256(''), 'erasure', 'x' || n, '{}', now() FROM generate_series(1, 99) n`, s.Client("shop"))
	wantAnswer(t, "the hundred and first erasure", sendOrder(s, s.App, "/v1/users/nobody/erase", fleet.Fields{"reason": "asked"}), coded("state-conflict"), "100 erasures")
	exec(s, `DELETE FROM jobs WHERE kind = 'erasure' AND client = $1 AND user_id LIKE 'x%'`, s.Client("shop"))
	wantAnswer(t, "of another client", sendOrder(s, kiosk, "/v1/campaigns/"+id.String()+"/holds", fleet.Fields{"user_id": mina, "quantity": 1}), 201)
	exec(s, `UPDATE jobs SET state = 'failed', problem = '{"code":"state-conflict"}', finished_at = now() WHERE kind = 'erasure' AND user_id = $1`, mina)
	wantAnswer(t, "when it has failed, with the key", s.Buy(fleet.Order{Campaign: id, User: mina, Key: "buy"}), 202)
}
