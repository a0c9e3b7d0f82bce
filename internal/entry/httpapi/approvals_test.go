package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/job"
	"triprize/internal/key"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
)

// withApprovals gives a test an api that holds operations for another person's approval.
func withApprovals(t *testing.T, o fleet.Options, required string, env ...string) *fleet.System {
	t.Helper()
	return fleet.Shared(t, o).With(append(approvalsOf(required), env...)...)
}

// person is a browser whose person has signed in with an account that has these roles.
func person(s *fleet.System, subject string, roles ...key.Role) browser {
	s.T.Helper()
	sessions := key.NewSessions(s.DB, key.NewVerifier(s.DB, key.CacheTTL), s.Settings.Draw.SecretKey)
	who := key.Person{Issuer: "https://accounts.test", Subject: s.User(subject), Email: subject + "@accounts.test", Roles: roles}
	servers.NoError(s.T, sessions.NoteRoles(s.T.Context(), who))
	_, cookie, err := sessions.OpenFor(s.T.Context(), who)
	servers.NoError(s.T, err)
	return browser{s, "triprize-console=" + cookie}
}

// requested asks for something that needs an approval by the operator's key, and returns the request.
func requested(s *fleet.System, path string, body any, header ...string) contract.Approval {
	s.T.Helper()
	a := sendOrder(s, s.Operator, path, body, header...)
	mustAnswer(s.T, path, a, http.StatusAccepted)
	found := decoded[contract.Approval](s, a)
	wantEqual(s.T, "its address", a.Header.Get("Location"), "/v1/approvals/"+found.ID.String())
	wantEqual(s.T, "its state", found.State, contract.ApprovalStatePending)
	return found
}

func sendOrder(s *fleet.System, credential, path string, body any, header ...string) fleet.Answer {
	s.T.Helper()
	headers := map[string]string{"Idempotency-Key": uuid.NewString()}
	for i := 0; i < len(header); i += 2 {
		headers[header[i]] = header[i+1]
	}
	return s.Do(0, credential, http.MethodPost, path, headers, body)
}

// approvalNow reads a request.
func approvalNow(s *fleet.System, id uuid.UUID) contract.Approval {
	s.T.Helper()
	a := s.Do(0, s.Operator, http.MethodGet, "/v1/approvals/"+id.String(), nil, nil)
	mustAnswer(s.T, "the request", a, http.StatusOK)
	return decoded[contract.Approval](s, a)
}

// statuses counts answers by status.
func statuses(answers []fleet.Answer) string {
	of := make(map[int]int)
	for _, a := range answers {
		of[a.Status]++
	}
	return fmt.Sprint(of)
}

func requestPage(a contract.Approval) string { return "/approvals/" + a.ID.String() }

func TestAnotherPersonApprovesWhatAnOperatorAsksFor(t *testing.T) {
	t.Parallel()
	s := withApprovals(t, quiet, "wallet.credit")
	wallet := s.Wallet(s.User("mina"), 100) // by an app: never held
	body := map[string]any{"amount": 900, "description": "a prize", "reference": s.User("till")}
	request := requested(s, wallet+"/credit", body, "Idempotency-Key", "once", "Triprize-Reason", "she%20won", "Triprize-Operator", "Otto", "If-Match", `"1"`)
	s.ExpectWallet(wallet, 100, 0)
	wantEqual(t, "what is asked", request.Operation+" "+request.Target, "wallet.credit "+fleet.WalletID(wallet))
	wantEqual(t, "who asks", *request.RequestedBy.Operator+*request.RequestedBy.Reason, "Ottoshe won")
	again := sendOrder(s, s.Operator, wallet+"/credit", body, "Idempotency-Key", "once", "If-Match", `"1"`)
	wantAnswer(t, "the same again", again, http.StatusAccepted, isReplayed, request.ID.String())
	wantAnswer(t, "another with its key", sendOrder(s, s.Operator, wallet+"/credit", map[string]any{"amount": 1}, "Idempotency-Key", "once"), coded("idempotency-key-reused"))

	approve := "/v1/approvals/" + request.ID.String() + "/approve"
	reason := map[string]any{"reason": "I have seen the receipt"}
	wantAnswer(t, "by a key", sendOrder(s, s.Operator, approve, reason), http.StatusForbidden)
	wantAnswer(t, "by an app", sendOrder(s, s.App, approve, reason), http.StatusForbidden)
	ops, finance, support := person(s, "ops", key.Operator), person(s, "finance", key.Approver), person(s, "support", key.Viewer)
	wantAnswer(t, "by an operator", ops.post(requestPage(request)+"/approve", "/reason", "yes"), http.StatusForbidden)
	wantAnswer(t, "by a viewer", support.post(requestPage(request)+"/approve", "/reason", "yes"), http.StatusForbidden)
	wantAnswer(t, "the page for a viewer", support.get(requestPage(request)), http.StatusOK, "she won", "by a key", "900 JPY", without("<form class"))
	wantAnswer(t, "without a reason", finance.post(requestPage(request)+"/approve"), http.StatusBadRequest)
	wantAnswer(t, "the page that waits", support.get("/waiting"), http.StatusOK, requestPage(request))
	s.ExpectWallet(wallet, 100, 0)

	page := finance.get(requestPage(request))
	wantAnswer(t, "the page", page, http.StatusOK, "Approve</button>", "JPY", "a prize")
	wantAnswer(t, "approved", submit(finance, requestPage(request)+"/approve", formOf(page, "/reason", "I have seen the receipt")), http.StatusSeeOther)
	s.ExpectWallet(wallet, 1000, 0)
	wantAnswer(t, "the same form again", submit(finance, requestPage(request)+"/approve", formOf(page, "/reason", "I have seen the receipt")), http.StatusSeeOther)
	wantAnswer(t, "another form", finance.post(requestPage(request)+"/reject", "/reason", "no"), http.StatusConflict, "the request is approved")
	s.ExpectWallet(wallet, 1000, 0)
	now := approvalNow(s, request.ID)
	wantEqual(t, "its state", now.State, contract.ApprovalStateApproved)
	wantEqual(t, "who decided", *now.DecidedBy.Email+*now.DecidedBy.Reason, "finance@accounts.testI have seen the receipt")
	if now.Result == nil || !strings.Contains(string(now.Result.Answer), `"balance":1000`) {
		t.Errorf("the result is %+v", now.Result)
	}
	wantAnswer(t, "the first request again", sendOrder(s, s.Operator, wallet+"/credit", body, "Idempotency-Key", "once", "If-Match", `"1"`), http.StatusAccepted, `"state":"approved"`)
	for operation, target := range map[string]string{"requestApproval": request.ID.String(), "approveRequest": request.ID.String(), "creditWallet": fleet.WalletID(wallet)} {
		wantEqual(t, "rows of "+operation, count(s, `SELECT count(*) FROM audit_trail WHERE operation = $1 AND target = $2`, operation, target), 1)
	}
	wantEqual(t, "the row of the effect", count(s, `SELECT count(*) FROM audit_trail t WHERE operation = 'creditWallet' AND target = $1 AND approval_id = $2
		AND approved_by ->> 'email' = 'finance@accounts.test' AND operator = 'Otto' AND EXISTS (SELECT FROM audit_texts x WHERE reason = 'sha256:' || encode(x.hash, 'hex') AND x.text = '"she won"') AND client = $3`, fleet.WalletID(wallet), request.ID, s.Client("ops")), 1)
}

// operationsHeld are the operations of each name in approvals.required.
var operationsHeld = map[string][]string{"campaign.cancel": {"cancelCampaign"}, "draw.void": {"voidDraw"}, "payment.resolve": {"resolvePayment"}, "refund.resolve": {"resolveRefund"},
	"refunds.resolve-campaign": {"resolveRefunds"}, "wallet.credit": {"openWallet", "creditWallet"}, "wallet.debit": {"debitWallet", "transfer", "authorize", "captureAuthorization"}}

// Of each operation a request is held, and does nothing but to wait; approved, it is done as if it had been sent then.
func TestEachOperationThatNeedsAnApprovalWaitsForIt(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: slices.Concat(everyday, takingCards)})
	free, held := s.URLs, s.With(approvalsOf(strings.Join(slices.Collect(maps.Keys(operationsHeld)), ","))...).URLs
	finance := person(s, "finance", key.Approver)
	for name, held1 := range operationsHeld {
		for _, operation := range held1 {
			s.URLs = free
			c := newCommand(s, operation, s.App)
			switch operation {
			case "resolveRefund":
				refund := waitingRefund(s, s.Campaign(3), "failed", false).String()
				c.path, c.body = "/v1/refunds/"+refund+"/resolve", byHand(s, refund)
			case "resolveRefunds":
				campaign := s.Campaign(3)
				waitingRefund(s, campaign, "failed", false)
				c.path, c.body = "/v1/campaigns/"+campaign.String()+"/refunds/resolve", allByHand(s, campaign, "card")
			}
			s.URLs = held
			before := rows(s)
			a := requested(s, c.path, c.body, "Prefer", "wait=10")
			wantEqual(t, operation, a.Operation, name)
			got := grown(s, before)
			delete(got, "audit_texts") // of its row of the trail
			if !maps.Equal(got, map[string]int{"approvals": 1, "jobs": 1, "audit_trail": 1}) {
				t.Errorf("%s: to ask made %v", operation, got)
			}
			if operation == "resolvePayment" { // it is looked at meanwhile
				exec(s, `UPDATE payments SET version = version + 3 WHERE purchase_id = $1`, a.Target)
			}
			mustAnswer(t, operation, finance.post(requestPage(a)+"/approve", "/reason", "yes"), http.StatusSeeOther)
			now := approvalNow(s, a.ID)
			if now.State != contract.ApprovalStateApproved || now.Result == nil || now.Result.Problem != nil || (now.Result.Job != nil) != (operation == "cancelCampaign" || operation == "voidDraw") {
				t.Errorf("%s: %v, %s", operation, now.State, now.Result)
			}
			wantEqual(t, operation+" in the trail", count(s, `SELECT count(*) FROM audit_trail WHERE operation = $1 AND approval_id = $2`, operation, a.ID), 1)
		}
	}
	wantAnswer(t, "an empty wallet", sendOrder(s, s.Operator, "/v1/wallets", fleet.Fields{"owner_id": "new", "currency": "JPY"}), http.StatusCreated)
	wantAnswer(t, "what would be refused", sendOrder(s, s.Operator, "/v1/wallets/"+uuid.NewString()+"/credit", fleet.Fields{"amount": 1}), http.StatusNotFound)
	wantAnswer(t, "what is not valid", sendOrder(s, s.Operator, s.Wallet("poor", 1)+"/debit", fleet.Fields{"amount": 2}), coded("insufficient-funds"))

	// A hundred requests of a requester wait, and a thousand in all.
	wallet := s.Wallet("many", 1) + "/credit"
	fill := func(n int, requester string) {
		exec(s, `INSERT INTO approvals (id, requester, operation, target, path, requested_by, deciding, preview)
			SELECT gen_random_uuid(), $2, 'wallet.credit', '', '', '{}', '{}', '[]' FROM generate_series(1, $1)`, n, requester)
	}
	fill(99, s.Client("ops"))
	requested(s, wallet, fleet.Fields{"amount": 1})
	wantAnswer(t, "one more", sendOrder(s, s.Operator, wallet, fleet.Fields{"amount": 1}), coded("state-conflict"), "100 of your requests")
	fill(900, "others")
	wantAnswer(t, "one more of others", submit(person(s, "otto", key.Operator), strings.TrimPrefix(wallet, "/v1"), map[string]string{"/amount": "1", "/version": "1", "/reason": "r"}), http.StatusConflict, "1000 requests")
}

func approvalsOf(required string) []string {
	return []string{"TRIPRIZE_APPROVALS_REQUIRED=" + required, "TRIPRIZE_CONSOLE_SIGN_IN=both", "TRIPRIZE_CONSOLE_OIDC_ISSUER=https://accounts.test",
		"TRIPRIZE_CONSOLE_OIDC_CLIENT_ID=triprize", "TRIPRIZE_CONSOLE_OIDC_ROLES_OPERATOR=ops", "TRIPRIZE_CONSOLE_OIDC_ROLES_APPROVER=finance"}
}

// What is asked at once, just below the threshold, is one sum.
func TestManyAmountsBelowAThresholdAreOneAboveIt(t *testing.T) {
	t.Parallel()
	s := withApprovals(t, quiet, "wallet.credit,wallet.debit", "TRIPRIZE_APPROVALS_ABOVE=JPY 1000, EUR 5")
	wallet, other := s.Wallet(s.User("mina"), 2000), s.Wallet(s.User("otto"), 0)
	credits := statuses(fleet.AtOnce(10, func(int) fleet.Answer { return sendOrder(s, s.Operator, wallet+"/credit", fleet.Fields{"amount": 300}) }))
	wantEqual(t, "credits of 300, ten at once", credits, "map[200:3 202:7]")
	s.ExpectWallet(wallet, 2900, 0)
	wantAnswer(t, "the rest of the threshold", sendOrder(s, s.Operator, wallet+"/credit", fleet.Fields{"amount": 100}), http.StatusOK)
	requested(s, wallet+"/credit", fleet.Fields{"amount": 1})
	wantAnswer(t, "at another owner's", sendOrder(s, s.Operator, other+"/credit", fleet.Fields{"amount": 1000}), http.StatusOK)
	wantAnswer(t, "by another requester", submit(person(s, "ops", key.Operator), strings.TrimPrefix(wallet, "/v1")+"/credit", map[string]string{"/amount": "1000", "/version": "5", "/reason": "r"}), http.StatusSeeOther, having("Location"))
	wantAnswer(t, "the other way", sendOrder(s, s.Operator, wallet+"/debit", fleet.Fields{"amount": 600}), http.StatusOK)
	requested(s, "/v1/transfers", fleet.Fields{"from": fleet.WalletID(wallet), "to": fleet.WalletID(other), "amount": 401})
	held := s.Execute(wallet+"/authorizations", fleet.Fields{"amount": 400})
	wantAnswer(t, "all that is held", sendOrder(s, s.Operator, wallet+"/authorizations/"+held.ID.String()+"/capture", nil), http.StatusOK)
	requested(s, wallet+"/debit", fleet.Fields{"amount": 1})
	approved := requested(s, wallet+"/authorizations/"+s.Execute(wallet+"/authorizations", fleet.Fields{"amount": 1}).ID.String()+"/capture", nil)
	wantAnswer(t, "approved", person(s, "finance", key.Approver).post(requestPage(approved)+"/approve", "/reason", "yes"), http.StatusSeeOther)
	wantEqual(t, "what was debited, with what was approved", count(s, `SELECT sum(amount) FROM approval_movements WHERE requester = $1 AND operation = 'wallet.debit'`, s.Client("ops")), 1001)
	wantAnswer(t, "a currency without a threshold", sendOrder(s, s.Operator, "/v1/wallets", fleet.Fields{"owner_id": s.User("usa"), "currency": "USD", "initial_balance": 1}), http.StatusAccepted)
	wantAnswer(t, "a new wallet within the threshold", sendOrder(s, s.Operator, "/v1/wallets", fleet.Fields{"owner_id": s.User("eva"), "currency": "EUR", "initial_balance": 5}), http.StatusCreated)
	exec(s, `UPDATE approval_movements SET at = at - interval '1 day' WHERE requester = $1`, s.Client("ops"))
	for range 2 { // it counts once
		wantAnswer(t, "a day later, with one key", sendOrder(s, s.Operator, wallet+"/credit", fleet.Fields{"amount": 600}, "Idempotency-Key", "later"), http.StatusOK, having("ETag"))
	}
	wantAnswer(t, "the rest of that day", sendOrder(s, s.Operator, wallet+"/credit", fleet.Fields{"amount": 400}), http.StatusOK)
}

func TestNobodyApprovesTheirOwnRequest(t *testing.T) {
	t.Parallel()
	s := withApprovals(t, quiet, "wallet.credit", "TRIPRIZE_APPROVALS_BY=persons")
	wallet := s.Wallet(s.User("mina"), 0)
	wantAnswer(t, "by a key", sendOrder(s, s.Operator, wallet+"/credit", fleet.Fields{"amount": 1}), http.StatusForbidden, "approvals.by")
	both := person(s, "both", key.Operator, key.Approver)
	form := strings.TrimPrefix(wallet, "/v1") + "/credit"
	a := fill(both, form, "/amount", "5", "/reason", "she won")
	mustAnswer(t, "the form", a, http.StatusSeeOther)
	request := strings.TrimPrefix(a.Header.Get("Location"), "/console")
	s.ExpectWallet(wallet, 0, 0)
	wantAnswer(t, "its page", both.get(request), http.StatusOK, "Withdraw</button>", "Reject</button>", without("Approve</button>"), "both@accounts.test")
	wantAnswer(t, "its own", both.post(request+"/approve", "/reason", "yes"), http.StatusForbidden, "their own request")
	wantAnswer(t, "in a second session", person(s, "both", key.Approver).post(request+"/approve", "/reason", "yes"), http.StatusForbidden, "their own request")
	person(s, "both", key.Operator, key.Approver) // it has both again
	wantAnswer(t, "withdrawn by another", person(s, "ops", key.Operator).post(request+"/withdraw", "/reason", "no"), http.StatusForbidden)
	wantAnswer(t, "a cookie at the API", sendOrder(s, "", "/v1"+request+"/approve", fleet.Fields{"reason": "r"}, "Cookie", both.cookie), http.StatusUnauthorized)

	finance := person(s, "finance", key.Approver)
	decided := statuses(fleet.AtOnce(10, func(i int) fleet.Answer {
		return []browser{finance, person(s, "treasury", key.Approver)}[i%2].post(request+"/approve", "/reason", "yes")
	}))
	wantEqual(t, "ten approve at once", decided, "map[303:1 409:9]")
	s.ExpectWallet(wallet, 5, 0)

	a = fill(both, form, "/amount", "6", "/reason", "she won")
	request = strings.TrimPrefix(a.Header.Get("Location"), "/console")
	wantAnswer(t, "withdrawn", both.post(request+"/withdraw", "/reason", "a mistake"), http.StatusSeeOther)
	wantAnswer(t, "approved then", finance.post(request+"/approve", "/reason", "yes"), http.StatusConflict, "the request is withdrawn")
	s.ExpectWallet(wallet, 5, 0)
	wantAnswer(t, "a key of ours", sendOrder(s, s.App, wallet+"/credit", fleet.Fields{"amount": 1}, "Idempotency-Key", "approval:"+strings.TrimPrefix(request, "/approvals/")), coded("idempotency-key-invalid"))
	wantEqual(t, "who is not in the trail", count(s, `SELECT count(*) FROM audit_trail WHERE operation IN ('withdrawRequest', 'approveRequest') AND issuer IS NULL AND target = $1`, strings.TrimPrefix(request, "/approvals/")), 0)
}

func TestARequestIsOutdatedWhenWhatDecidesHasChanged(t *testing.T) {
	t.Parallel()
	s := withApprovals(t, busy, "campaign.cancel,wallet.credit")
	finance := person(s, "finance", key.Approver)
	cancel := func() (uuid.UUID, contract.Approval) {
		id := s.Campaign(3)
		return id, requested(s, "/v1/campaigns/"+id.String()+"/cancel", fleet.Fields{"reason": "rain"})
	}
	outdated := func(what string, request contract.Approval) {
		t.Helper()
		jobs := count(s, `SELECT count(*) FROM jobs WHERE client = $1`, s.Client("ops"))
		wantAnswer(t, what, finance.post(requestPage(request)+"/approve", "/reason", "yes"), http.StatusSeeOther)
		wantEqual(t, what, approvalNow(s, request.ID).State, contract.ApprovalStateOutdated)
		wantEqual(t, what+": jobs that were made", count(s, `SELECT count(*) FROM jobs WHERE client = $1`, s.Client("ops"))-jobs, 0)
		wantEqual(t, what+" in the trail", count(s, `SELECT count(*) FROM audit_trail WHERE operation = 'outdateRequest' AND target = $1`, request.ID), 1)
	}
	id, paused := cancel()
	mustAnswer(t, "the pause", sendOrder(s, s.Operator, "/v1/campaigns/"+id.String()+"/pause", nil), http.StatusOK)
	outdated("a campaign that was paused", paused)
	id, sold := cancel()
	fixture.Buy(t, s.DB, id, s.User("mina"), 0, 1)
	beaten := requested(s, "/v1/campaigns/"+id.String()+"/cancel", fleet.Fields{"reason": "snow"})
	wantAnswer(t, "a campaign that has sold", finance.post(requestPage(sold)+"/approve", "/reason", "yes"), http.StatusSeeOther)
	now := approvalNow(s, sold.ID)
	wantEqual(t, "a campaign that has sold", now.State, contract.ApprovalStateApproved)
	var made struct{ ID uuid.UUID }
	servers.NoError(t, json.Unmarshal(now.Result.Job, &made))
	mustAnswer(t, "its cancellation", s.Do(0, s.Operator, http.MethodGet, "/v1/jobs/"+made.ID.String(), map[string]string{"Prefer": fleet.UntilFinal}, nil), job.Succeeded)
	outdated("a campaign that a worker has cancelled", beaten)

	wallet := s.Wallet(s.User("mina"), 0)
	other, err := key.Create(t.Context(), s.DB, key.Operator, s.Client("ops"))
	servers.NoError(t, err)
	a := sendOrder(s, other, wallet+"/credit", fleet.Fields{"amount": 1})
	mustAnswer(t, "asked by a key", a, http.StatusAccepted)
	mustAnswer(t, "the key is revoked", sendOrder(s, s.Operator, "/v1/keys/"+strings.Split(other, "_")[1]+"/revoke", nil), http.StatusOK)
	outdated("by a key that was revoked", decoded[contract.Approval](s, a))
	ops := person(s, "ops", key.Operator)
	a = fill(ops, strings.TrimPrefix(wallet, "/v1")+"/credit", "/amount", "5", "/reason", "she won")
	mustAnswer(t, "asked by a person", a, http.StatusSeeOther)
	person(s, "ops", key.Viewer) // the provider says so at its next sign-in
	id = uuid.MustParse(path.Base(a.Header.Get("Location")))
	outdated("by a person who has lost the role", approvalNow(s, id))
	s.ExpectWallet(wallet, 0, 0)
}

// A request that nobody has decided about is expired by the database's clock, also before the sweep has come.
func TestARequestExpires(t *testing.T) {
	t.Parallel()
	s := withApprovals(t, quiet, "wallet.credit")
	request := requested(s, s.Wallet(s.User("mina"), 0)+"/credit", fleet.Fields{"amount": 1})
	tx, err := s.DB.Begin(t.Context())
	servers.NoError(t, err)
	for _, sql := range []string{`SET LOCAL session_replication_role = replica`, `UPDATE approvals SET expires_at = clock_timestamp() WHERE id = '` + request.ID.String() + `'`} {
		_, err = tx.Exec(t.Context(), sql)
		servers.NoError(t, err)
	}
	servers.NoError(t, tx.Commit(t.Context()))
	list := func(state string) string {
		return string(s.Do(0, s.Operator, http.MethodGet, "/v1/approvals?limit=200&state="+state, nil, nil).Body)
	}
	for _, swept := range []bool{false, true} {
		if swept {
			wantAnswer(t, "the sweep", sendOrder(s, s.Operator, "/v1/sweeps/expired-approvals", nil), http.StatusOK)
		}
		wantAnswer(t, "approved too late", person(s, "finance", key.Approver).post(requestPage(request)+"/approve", "/reason", "yes"), http.StatusConflict, "the request is expired")
		wantEqual(t, "its state", approvalNow(s, request.ID).State, contract.ApprovalStateExpired)
		wantEqual(t, "listed as pending", strings.Contains(list("pending"), request.ID.String()), false)
		wantEqual(t, "listed as expired", strings.Contains(list("expired"), request.ID.String()), true)
		wantEqual(t, "rows in the trail", count(s, `SELECT count(*) FROM audit_trail WHERE operation = 'expireRequest' AND via = 'system' AND target = $1`, request.ID), map[bool]int{true: 1}[swept])
	}
	exec(s, `UPDATE approvals SET body = NULL WHERE id = $1`, request.ID) // as its retention does
	wantAnswer(t, "its page", person(s, "support", key.Viewer).get(requestPage(request)), http.StatusOK, "expired")
	if _, err := s.DB.Exec(t.Context(), `UPDATE approvals SET state = 'approved', decided_by = '{}' WHERE id = $1`, request.ID); err == nil {
		t.Error("a request that has ended was ended again")
	}
}

// The event of a request goes to operators' endpoints only, and says nothing of what is in the request.
func TestOnlyOperatorsHearOfRequests(t *testing.T) {
	t.Parallel()
	s := withApprovals(t, quiet, "wallet.credit")
	own := endpointOf(s, asked(s, s.Operator, endpointsPath, uuid.NewString(), endpointBody("*")), http.StatusCreated).ID
	apps := endpointOf(s, asked(s, s.App, endpointsPath, uuid.NewString(), endpointBody("*")), http.StatusCreated).ID
	request := requested(s, s.Wallet(s.User("mina"), 0)+"/credit", fleet.Fields{"amount": 1, "description": "a secret prize"})
	of := func(endpoint any) int {
		return count(s, `SELECT count(*) FROM webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id WHERE e.type = 'approval.requested' AND e.subject = $1 AND d.endpoint_id = $2`, request.ID, endpoint)
	}
	wantEqual(t, "the operator's endpoint", of(own), 1)
	wantEqual(t, "the app's", of(apps), 0)
	rendered, err := resource.WebhookDocuments{DB: s.DB}.Render(t.Context(), []webhook.Event{{ID: request.ID, Type: "approval.requested", Subject: request.ID}})
	servers.NoError(t, err)
	if text := string(rendered[request.ID]); !strings.Contains(text, request.ID.String()) || strings.Contains(text, "secret prize") {
		t.Errorf("the event says %s", text)
	}
}

// Each api records the settings with which it starts, if they are others than those of the last one.
func TestTheSettingsOfApprovalsAreRecorded(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: everyday})
	recorded := func() int {
		return count(s, `SELECT count(*) FROM audit_trail WHERE target = 'approvals' AND via = 'system'`)
	}
	s.RunAPI()
	wantEqual(t, "without any", recorded(), 0)
	for i, required := range []string{"wallet.credit,draw.void", "draw.void,wallet.credit", "draw.void", ""} {
		s.RunAPI(approvalsOf(required)...)
		wantEqual(t, required, recorded(), []int{1, 1, 2, 3}[i])
	}
	wantEqual(t, "what has changed", count(s, `SELECT count(*) FROM audit_trail WHERE target = 'approvals' AND before #>> '{approvals,required}' = '["draw.void","wallet.credit"]'
		AND after #>> '{approvals,required}' = '["draw.void"]' AND address <> ''`), 1)
}

// A request whose job is just being deleted, after its retention, has its answer or is asked for again: it is not done.
func TestARepeatedRequestIsNeverDoneWithoutItsApproval(t *testing.T) {
	t.Parallel()
	s := withApprovals(t, quiet, "wallet.credit")
	wallet, body := s.Wallet(s.User("mina"), 0), fleet.Fields{"amount": 777}
	request := requested(s, wallet+"/credit", body, "Idempotency-Key", "once")
	mustAnswer(t, "withdrawn", sendOrder(s, s.Operator, "/v1/approvals/"+request.ID.String()+"/withdraw", fleet.Fields{"reason": "a mistake"}), http.StatusOK)
	tx, err := s.DB.Begin(t.Context())
	servers.NoError(t, err)
	_, err = tx.Exec(t.Context(), `DELETE FROM jobs WHERE client = $1 AND idempotency_key = 'once'`, s.Client("ops"))
	servers.NoError(t, err)
	done := make(chan fleet.Answer, 1)
	go func() { done <- sendOrder(s, s.Operator, wallet+"/credit", body, "Idempotency-Key", "once") }()
	servers.Eventually(t, "it is answered, or waits", func() bool {
		return len(done) > 0 || servers.Value[int](t, s.DB, `SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))`, tx.Conn().PgConn().PID()) > 0
	})
	servers.NoError(t, tx.Commit(t.Context()))
	wantAnswer(t, "the repeated request", <-done, http.StatusAccepted)
	s.ExpectWallet(wallet, 0, 0)
}

// Each approval has a connection while what it does takes another.
func TestApprovalsLeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	s := withApprovals(t, quiet, "campaign.cancel", "TRIPRIZE_POSTGRES_MAX_CONNECTIONS=4")
	campaigns := make([]uuid.UUID, 16)
	for i := range campaigns {
		campaigns[i] = s.Campaign(3)
	}
	patient := func(send func() fleet.Answer) (a fleet.Answer) { // too many wait for a connection: 503, as a busy api asks for
		for a.Status = http.StatusServiceUnavailable; a.Status == http.StatusServiceUnavailable; {
			a = send()
		}
		return a
	}
	answers := fleet.AtOnce(len(campaigns), func(i int) fleet.Answer {
		return patient(func() fleet.Answer {
			return sendOrder(s, s.Operator, "/v1/campaigns/"+campaigns[i].String()+"/cancel", fleet.Fields{"reason": "PUBLIC TEXT"}, "Triprize-Reason", "harmless", "Idempotency-Key", fmt.Sprint(i))
		})
	})
	wantEqual(t, "asked at once", statuses(answers), "map[202:16]")
	finance := person(s, "finance", key.Approver)
	wantEqual(t, "approved at once", statuses(fleet.AtOnce(len(answers), func(i int) fleet.Answer {
		return patient(func() fleet.Answer {
			return finance.post("/approvals/"+answers[i].ID.String()+"/approve", "/reason", "yes", "once", "of "+s.Client(fmt.Sprint(i)))
		})
	})), "map[303:16]")
	wantAnswer(t, "the page", finance.get("/approvals/"+answers[0].ID.String()), http.StatusOK, "PUBLIC TEXT", "harmless")
}

// The database itself lets nobody change what was asked, or approve for oneself.
func TestWhatWasAskedForStaysAsItWas(t *testing.T) {
	t.Parallel()
	s := withApprovals(t, quiet, "wallet.credit")
	id := pendingApproval(s)
	for _, change := range []string{`body = '{}'`, `body = NULL`, `requester = 'x'`, `preview = '[]'`, `deciding = '{}'`, `path = '/'`, `expires_at = expires_at + interval '1 day'`, `id = gen_random_uuid()`, `requested_by = '{}'`,
		`state = 'approved', decided_at = clock_timestamp(), decided_by = requested_by`, `state = 'approved', decided_at = clock_timestamp(), decided_by = '{"client":"ops"}'`} {
		if _, err := s.DB.Exec(t.Context(), `UPDATE approvals SET `+change+` WHERE id = $1`, id); err == nil {
			t.Errorf("%s is done", change)
		}
	}
	if _, err := s.DB.Exec(t.Context(), `DELETE FROM approvals WHERE id = $1`, id); err == nil {
		t.Error("a request is deleted")
	}
}
