package httpapi_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"

	"triprize/api"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
	"triprize/migrations"
)

// pages is a list of the contract, to which a test can add elements.
type pages struct {
	path   string        // with a query, unless everything is wanted
	newest bool          // the newest is the first
	add    func() string // returns the id
}

// listsOf are lists of the contract, by operation. A new one fails the test until it is here.
func listsOf(s *fleet.System, operation string) map[string]pages {
	s.T.Helper()
	campaign, mina := s.Campaign(20), s.User("mina")
	within := "/v1/campaigns/" + campaign.String()
	buy := func() uuid.UUID { return adopted(s, fixture.Buy(s.T, s.DB, campaign, mina, 0, 1)) }
	purchase := func() string { return buy().String() }
	column := 0
	hold := func() string {
		column++
		h := s.MustHold(fleet.HoldOrder{Campaign: campaign, User: mina, At: []shape.Position{fixture.At(20, column)}})
		s.Release(s.App, h.ID)
		return h.ID.String()
	}
	version := func(wallet string) func() string {
		return func() string {
			return fmt.Sprint(fleet.As[fleet.WalletView](s.T, s.Execute(wallet+"/credit", fleet.Fields{"amount": 1})).Version)
		}
	}
	switch operation {
	case "listCampaigns":
		return map[string]pages{"active": {"/v1/campaigns?state=active", true, func() string { return s.Campaign(3).String() }},
			"all": {"/v1/campaigns", true, func() string { return s.Post("/v1/campaigns", fleet.CampaignBody(3)).ID.String() }}}
	case "listCampaignPurchases":
		return map[string]pages{"": {within + "/purchases", true, purchase}}
	case "listPurchases":
		return map[string]pages{"": {"/v1/users/" + mina + "/purchases", true, purchase}}
	case "findPurchases":
		return map[string]pages{"": {"/v1/purchases?reference=" + s.User("order"), true, func() string {
			bought := purchase()
			exec(s, `UPDATE purchases SET payment_reference = $2 WHERE id = $1`, bought, s.User("order"))
			return bought
		}}}
	case "listJobs":
		return map[string]pages{"": {"/v1/jobs?kind=purchase", true, func() string { return s.Buy(fleet.Order{Campaign: campaign, User: mina}).ID.String() }}}
	case "listHolds":
		return map[string]pages{"": {"/v1/holds?campaign_id=" + campaign.String(), true, hold}}
	case "listUserHolds":
		return map[string]pages{"": {"/v1/users/" + mina + "/holds", true, hold}}
	case "listWallets":
		currencies := []string{"USD", "JPY", "EUR", "KWD", "GBP", "CHF", "CAD", "AUD", "NZD", "SEK", "NOK", "DKK"}
		return map[string]pages{"": {"/v1/wallets?owner_id=" + s.User("owner"), false, func() string {
			currency := currencies[0]
			currencies = currencies[1:]
			return s.Execute("/v1/wallets", fleet.Fields{"owner_id": s.User("owner"), "currency": currency}).ID.String()
		}}}
	case "listWalletEvents":
		newest, oldest, later := s.Wallet(mina, 0), s.Wallet(s.User("otto"), 0), s.Wallet(s.User("vera"), 10)
		return map[string]pages{"newest first": {newest + "/events", true, version(newest)}, "oldest first": {oldest + "/events?from_version=1", false, version(oldest)},
			"from a version": {later + "/events?from_version=2", false, version(later)}}
	case "listRefunds":
		return map[string]pages{"": {within + "/refunds", false, func() string { return insertRefund(s, buy(), "external", "listed").String() }}}
	case "listWaitingRefunds":
		return map[string]pages{"": {"/v1/refunds?waiting_for=operator", false, func() string { return waitingRefund(s, campaign, "failed", false).String() }}}
	case "listPayments":
		return map[string]pages{"": {"/v1/payments?waiting_for=operator", false, func() string {
			bought, end := waits(s, campaign, payment.Capturing, payment.WaitsForOperator)
			s.T.Cleanup(end)
			return bought.String()
		}}}
	case "listPaymentDiscrepancies":
		return map[string]pages{"": {"/v1/payment-discrepancies", false, func() string { return newDifference(s).String() }}}
	case "listWebhookEndpoints":
		return map[string]pages{"": {endpointsPath, false, func() string {
			return asked(s, s.App, endpointsPath, uuid.NewString(), endpointBody("*")).ID.String()
		}}}
	case "listApprovals":
		return map[string]pages{"": {"/v1/approvals", true, func() string { return pendingApproval(s) }}, "pending": {"/v1/approvals?state=pending", true, func() string { return pendingApproval(s) }}}
	case "listAuditTrail":
		return map[string]pages{"": {"/v1/audit-trail?target=" + campaign.String(), true, func() string {
			s.Do(0, s.Operator, http.MethodPatch, within, nil, fleet.Fields{"metadata": fleet.Fields{"at": uuid.NewString()}})
			return servers.Value[string](s.T, s.DB, `SELECT max(id::text) FROM audit_trail WHERE target = $1`, campaign.String())
		}}}
	case "listWebhookDeliveries":
		path := endpointAt(s, "https://shop.example/triprize", "campaign.drawn")
		return map[string]pages{"": {path + "/deliveries", true, func() string {
			return decoded[struct {
				EventID string `json:"event_id"`
			}](s, asked(s, s.App, path+"/test", uuid.NewString(), nil)).EventID
		}}}
	}
	s.T.Fatalf("%s is new: say here how it is filled", operation)
	return nil
}

// elements are the ids in a page of any list, by the name that they have there.
func elements(t *testing.T, a fleet.Answer) (ids []string, next string) {
	t.Helper()
	var page map[string]json.RawMessage
	if err := json.Unmarshal(a.Body, &page); err != nil || a.Status != http.StatusOK {
		t.Fatalf("%v %s", a, a.Body)
	}
	for name, part := range page {
		if name == "next_cursor" {
			_ = json.Unmarshal(part, &next) // null: the last page
			continue
		}
		var list []struct {
			ID         *string
			EventID    string `json:"event_id"`
			PurchaseID string `json:"purchase_id"`
			Version    int64
		}
		if err := json.Unmarshal(part, &list); err != nil {
			t.Fatalf("%s: %v", a.Body, err)
		}
		for _, e := range list {
			switch {
			case e.ID != nil:
				ids = append(ids, *e.ID)
			case e.EventID != "":
				ids = append(ids, e.EventID)
			case strings.HasPrefix(name, "payment"):
				ids = append(ids, e.PurchaseID)
			default:
				ids = append(ids, fmt.Sprint(e.Version))
			}
		}
	}
	return ids, next
}

// readPages reads a list to its end, and does something after the first page.
func readPages(s *fleet.System, credential, path string, size int, between func()) (all []string) {
	s.T.Helper()
	join := "?"
	if strings.Contains(path, "?") {
		join = "&"
	}
	for cursor := ""; ; between = func() {} {
		ids, next := elements(s.T, s.Do(0, credential, http.MethodGet, fmt.Sprint(path, join, "limit=", size, cursor), nil, nil))
		if all = append(all, ids...); len(ids) > size || next != "" && len(ids) != size || cursor != "" && len(ids) == 0 { // null after the last page
			s.T.Fatalf("%s: a page of %d has %d elements, and the next begins at %q", path, size, len(ids), next)
		}
		if next == "" {
			return all
		}
		if cursor == "&cursor="+next {
			s.T.Fatalf("%s: the next page is the same", path)
		}
		between()
		cursor = "&cursor=" + next
	}
}

// What is added while a list is read comes at its end, or not at all.
func TestEveryListIsReadOnceThroughInPagesOfAnySize(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: slices.Concat(everyday, takingCards)})
	parameters := make(map[string]openapi3.Parameters)
	for _, o := range newMaker(t, nil).operations {
		parameters[o.OperationID] = o.parameters
	}
	for _, o := range operations(t) {
		if !slices.ContainsFunc(parameters[o.ID], func(p *openapi3.ParameterRef) bool { return p.Value.Name == "cursor" }) {
			continue
		}
		credential := s.Operator
		if slices.Contains(o.Roles, "app") {
			credential = s.App
		}
		for name, l := range listsOf(s, o.ID) {
			if name == "all" {
				credential = s.Operator // drafts are for operators
			}
			what := o.ID + " " + name
			want := readPages(s, credential, l.path, 200, nil)
			add := func() {
				if id := l.add(); l.newest {
					want = append([]string{id}, want...)
				} else {
					want = append(want, id)
				}
			}
			for range 5 {
				add()
			}
			for _, size := range []int{1, 2, len(want), len(want) + 1} {
				if got := readPages(s, credential, l.path, size, func() {}); !slices.Equal(got, want) {
					t.Errorf("%s in pages of %d: %v, want %v", what, size, got, want)
				}
			}
			before := want
			got := readPages(s, credential, l.path, 2, add)
			if l.newest {
				want = before
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, to which one was added meanwhile: %v, want %v", what, got, want)
			}
		}
	}
}

// schemas are the schemas of the contract, read once: with the race detector that takes seconds.
var schemas = sync.OnceValues(func() (*openapi3.T, error) { return openapi3.NewLoader().LoadFromData(api.OpenAPI) })

// enumOf returns the values that a schema of the contract has, or a property of it, sorted.
func enumOf(t *testing.T, schema string) (values []string) {
	t.Helper()
	document, err := schemas()
	servers.NoError(t, err)
	schema, property, _ := strings.Cut(schema, ".")
	found := document.Components.Schemas[schema].Value
	if property != "" {
		found = found.Properties[property].Value
	}
	for _, value := range found.Enum {
		values = append(values, value.(string))
	}
	slices.Sort(values)
	return values
}

// constantsOf returns the values of the constants of a package that match: by their type, or with a prefix.
func constantsOf(t *testing.T, dir, kind, prefix string) (values []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		servers.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) == 0 {
				return true
			}
			named, _ := spec.Type.(*ast.Ident)
			text, isText := spec.Values[0].(*ast.BasicLit)
			if isText && (kind != "" && named != nil && named.Name == kind || prefix != "" && strings.HasPrefix(spec.Names[0].Name, prefix)) {
				value, err := strconv.Unquote(text.Value)
				servers.NoError(t, err)
				values = append(values, value)
			}
			return true
		})
	}
	return values
}

// A reason of a refund that the program has and the schema refuses would stop every refund with it.
func TestTheValuesOfTheContractAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	var codes []string
	for _, code := range fault.Codes() {
		codes = append(codes, string(code))
	}
	kinds := slices.DeleteFunc(constantsOf(t, "job", "Kind", ""), func(kind string) bool { // tasks, of which there are no jobs
		return slices.Contains(job.TaskKinds[len(job.QueueKinds):], job.Kind(kind))
	})
	schema, err := migrations.Files.ReadFile("00105_payments.sql")
	servers.NoError(t, err)
	allowed := regexp.MustCompile(`reason\s+text\s+NOT NULL CHECK \(reason IN \('(.*)'\)\)`).FindSubmatch(schema)
	if allowed == nil {
		t.Fatal("the schema does not say which reasons a refund may have")
	}
	reasons := constantsOf(t, "payment", "RefundReason", "")
	for name, values := range map[string][]string{
		"ProblemCode": codes, "JobKind": kinds, "RefundReason": reasons,
		// Those of the purchase itself, and of the steps of its payment.
		"TimelineEntry.event": append([]string{"created", "completed", "cancelled", "partially-cancelled"}, constantsOf(t, "payment", "", "Step")...),
	} {
		if slices.Sort(values); !slices.Equal(values, enumOf(t, name)) {
			t.Errorf("%s: the program has %v, the contract %v", name, values, enumOf(t, name))
		}
	}
	if stored := slices.Sorted(slices.Values(strings.Split(string(allowed[1]), "', '"))); !slices.Equal(reasons, stored) {
		t.Errorf("the program has the reasons %v, the schema %v", reasons, stored)
	}
	for _, filter := range enumOf(t, "WebhookFilter") { // a type, a family with a star, or all; a test goes to its endpoint anyway
		family, isFamily := strings.CutSuffix(filter, "*")
		matches := func(one string) bool { return one == filter || isFamily && strings.HasPrefix(one, family) }
		if filter == webhook.EndpointTest || !slices.ContainsFunc(enumOf(t, "WebhookEventType"), matches) {
			t.Errorf("the contract has the filter %s, which selects nothing", filter)
		}
	}
}
