//go:build soak

package e2e

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"triprize/devkit/devstack"
	"triprize/internal/platform/schema"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// Each page is pasted into a shell beside one running triprize-dev dev, as its reader does it.
func TestTheGuidesWorkAsPasted(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	_, dev := startDev(t, dir)
	token, stderr, status := runDev(t, "token", "--config", filepath.Join(dir, "triprize.yaml"), "--user", "alice")
	if status != 0 {
		t.Fatal(stderr)
	}
	env := []string{"API=" + dev.APIURL, "OPERATOR=" + dev.OperatorKey, "APP=" + dev.AppKey, "TOKEN=" + strings.TrimSpace(token),
		"SANDBOX=" + dev.SandboxURL, "SANDBOX_KEY=" + dev.SandboxKey}
	const cards = "\n## Cards\n"
	aboutCards := chapter(t, guide, cards, "\n## ")
	for _, page := range []struct {
		name, text string
		says       []string // in this order
	}{
		{"the guide", strings.Replace(document(t, guide), cards+aboutCards, "", 1), []string{
			`"state":"active"`,                                // published,
			`"state":"succeeded"`,                             // sold,
			"200 OK", "Idempotent-Replayed: true", `"column"`, // replayed,
			"202 Accepted", "Retry-After: 1", // accepted,
			`"state":"succeeded"`, "event: job", `"state":"succeeded"`, // waited for, listened to,
			`"purchases":[{"id":`, `"user_id":"bob"`, // and found among the user's.
			`"state":"active"`, `"extensions":1`, `"amount":1000`, `"state":"used"`, // held, extended, bought
			`"metadata":{"cart":"c-81"`, // with ids of the app
			`"pointer":"/selection/quantity"`, `"code":"sold-out"`,
			`"kind":"cancellation","state":"succeeded"`, `"state":"cancelled"`, `"reason":"the buyer changed her mind"`,
			`"balance":5500`, `"amount":200`, // a wallet, and what it paid,
			`"captured":300,"state":"active"`, `"state":"voided"`, // held,
			`"code":"version-mismatch"`, `"code":"insufficient-funds"`, `"kind":"void"`, `"kind":"capture"`, // refused, and kept
			`"user_id":"alice"`, `"code":"not-found"`, // a token
			"304 Not Modified", "8\n", // eight are sold
			`"next_cursor"`,
			`"kind":"purchase","state":"failed"`, `"code":"sold-out"`, `"jobs":[],"next_cursor":null`, `"reference":"order-1"`, `"state":"used"`, // found,
			`"campaign":{"id":`, "id,created_at,completed_at,", "balance", // with what belongs to it, and the heads of tables
			`"since":null,"positions":[`, // followed,
			"event: campaign", `"state":"active"`, `"board":{"board_version":`,
		}},
		{"cards", aboutCards, []string{
			`"state":"succeeded"`, `"state":"completed"`, `"payment_method":"pm_card_visa"`, `"livemode":false`, `"event":"reserved"`, `"event":"captured"`, // paid,
			`"state":"awaiting_action"`, `"next_action":{"type":"redirect"`, `"state":"succeeded"`, // authenticated,
			`"state":"awaiting_action"`, `"next_action":{"type":"payment_method"`, `"decline_code":"insufficient_funds"`, `"state":"succeeded"`, // declined, then paid with another card,
			`"kind":"cancellation","state":"succeeded"`, `"state":"refunding"`, `"method":"card"`, // refunded
			`"kind":"campaign-cancellation","state":"succeeded"`, `"refunds":{"total":`, `"reason":"campaign-cancelled"`, `"refunds":[]`, // and over.
		}},
		{"test cards", document(t, "../docs/test-cards.md"), []string{
			"has ended: succeeded.", `"status": "succeeded"`, `"object": "refund"`, `"amount_received": 500`, `"object": "list"`, `"amount": 250`, `"payment_intent.succeeded"`,
			`"captured": {`, `"jpy": `, `"rate_limited": 0`, `"seed": 7`, `"seed": 0`, `"mode": "503"`, `"mode": ""`, `"lacks": [`, `"lacks": null`, `"now": `,
		}},
		{"the walk-through", chapter(t, "../docs/walk-through.md", "<!-- walk-through", "\x00"), []string{
			`"state":"active"`, `"commitment":"`, `"amount":600`, `"amount":2300`,
			`"kind":"draw","state":"succeeded"`, `"state":"completed"`, `"name":"A bicycle"`, `"state":"sold"`,
		}},
	} {
		t.Run(page.name, func(t *testing.T) {
			inOrder(t, paste(t, blocks(page.text), append(env, "CAMPAIGN="+publishedAt(t, dev, 5))...), page.says...)
		})
	}
	t.Run("webhooks", func(t *testing.T) { webhooksAsPasted(t, dev) })
	t.Run("nginx", func(t *testing.T) { throughNginx(t, dev) })
}

// publishedAt makes a campaign on sale at a running dev.
func publishedAt(t *testing.T, dev about, baseLength int) (id string) {
	t.Helper()
	made := dev.want(t, http.StatusCreated, http.MethodPost, "/v1/campaigns", dev.OperatorKey, fleet.CampaignBody(baseLength))
	id = made.ID.String()
	dev.want(t, http.StatusOK, http.MethodPost, "/v1/campaigns/"+id+"/publish", dev.OperatorKey, nil)
	return id
}

// webhooksAsPasted pastes the page about webhooks. Its address stands for that of a receiver in this test; all else is as it is.
func webhooksAsPasted(t *testing.T, dev about) {
	type message struct {
		header http.Header
		body   string
	}
	sent := make(chan message, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			sent <- message{r.Header, string(body)}
		}
	}))
	t.Cleanup(receiver.Close)
	const example = "https://shop.example/triprize"
	page := document(t, webhooksGuide)
	verify := regexp.MustCompile("(?s)```sh\nKEY=.*?```").FindString(page)
	if verify == "" || !strings.Contains(page, example) {
		t.Fatal("the block that verifies by hand, or the address, is gone")
	}
	out := paste(t, strings.ReplaceAll(blocks(strings.Replace(page, verify, "", 1)), example, receiver.URL), "API="+dev.APIURL, "APP="+dev.AppKey)
	inOrder(t, out, `"secret":"whsec_`, // made,
		`"type":"webhook-endpoint.test"`, `"type":"webhook-endpoint.test"`, `"attempts":[`, // tested, and looked at,
		`"state":"enabled"`, `"type":"webhook-endpoint.test"`, `"state":"pending"`, `"replayed":0`, // enabled, sent again, nothing has failed,
		`"secret":"whsec_`, // another secret,
		`127.0.0.1:3000`)   // and an endpoint on the own machine
	secrets := regexp.MustCompile(`"secret":"(whsec_[^"]+)"`).FindAllStringSubmatch(out, -1)
	event := regexp.MustCompile(`"event_id":"([^"]+)"`)
	first, endpoint := event.FindStringSubmatch(out), regexp.MustCompile(`"endpoint_id":"([^"]+)"`).FindStringSubmatch(out)
	if len(secrets) != 3 || first == nil || endpoint == nil {
		t.Fatalf("%d secrets, event %v of %v", len(secrets), first, endpoint)
	}
	// verified awaits an event, and tells whether the block of the page finds its signature with each secret.
	verified := func(event string, secrets ...string) (all []bool) {
		for end := time.After(servers.Patience); ; {
			select {
			case m := <-sent:
				if m.header.Get("webhook-id") != event {
					continue
				}
				for _, secret := range secrets {
					made := paste(t, strings.TrimSuffix(blocks(verify), "echo\n"), "WEBHOOK_SECRET="+secret, "WEBHOOK_ID="+event,
						"WEBHOOK_TIMESTAMP="+m.header.Get("webhook-timestamp"), "BODY="+m.body)
					all = append(all, slices.Contains(strings.Fields(m.header.Get("webhook-signature")), "v1,"+strings.TrimSpace(made)))
				}
				return all
			case <-end:
				t.Fatalf("%s was never sent", event)
			}
		}
	}
	old, rotated := secrets[0][1], secrets[1][1]
	if got := verified(first[1], old, "whsec_"+strings.Repeat("AAAA", 8)); !slices.Equal(got, []bool{true, false}) {
		t.Errorf("the block verifies with the secret, and with another one: %v", got)
	}
	again := dev.ask(t, http.MethodPost, "/v1/webhook-endpoints/"+endpoint[1]+"/test", dev.AppKey, nil)
	second := event.FindStringSubmatch(string(again.Body))
	if second == nil {
		t.Fatalf("%v %s", again, again.Body)
	}
	if got := verified(second[1], old, rotated); !slices.Equal(got, []bool{true, true}) { // while the two overlap
		t.Errorf("after the rotation: %v", got)
	}
}

func TestABackupIsTakenAndRestoredAsThePageSays(t *testing.T) {
	t.Parallel()
	text := chapter(t, operations, "<!-- a test takes these four commands", "\nTo restore")
	from, to := servers.Patient(servers.Settings(t)), servers.Patient(servers.Settings(t))
	full, empty := servers.Pool(t, from), servers.Pool(t, to)
	fixture.SellOut(t, full, fixture.Campaign(t, full, fixture.Draft(4)))
	before := fixture.State(t, full)
	servers.Exec(t, empty, `DROP SCHEMA public, clock, lease CASCADE; CREATE SCHEMA public`)
	out := paste(t, blocks(text), "TRIPRIZE_POSTGRES_URL="+from.Postgres.URL, "EMPTY_DATABASE_URL="+to.Postgres.URL,
		"TRIPRIZE_REDIS_URL="+from.Redis.URL, "PATH="+filepath.Dir(triprize(t))+":"+os.Getenv("PATH"))
	inOrder(t, out, "invariants hold")
	if after := fixture.State(t, empty); after != before || !strings.Contains(before, "job 1") {
		t.Errorf("there was\n%s\nand what is restored is\n%s", before, after)
	}
}

// The commands of the page about deployment bring back what was sold before a second, and nothing after it.
func TestTheArchiveRestoresToTheSecondAsThePageSays(t *testing.T) {
	t.Parallel()
	_, text, found := strings.Cut(document(t, "../docs/deployment.md"), "<!-- a test takes the commands of this chapter")
	if !found {
		t.Fatal("the commands are gone")
	}
	commands := strings.SplitAfter(blocks(text), "echo\n") // blocks ends each with this
	stack := startStack(t, openDir(t))
	dir, settings := openDir(t), servers.Patient(servers.Defaults(t))
	archive, base, restored := filepath.Join(dir, "archive"), filepath.Join(dir, "base"), filepath.Join(dir, "new", "postgres")
	settings.Postgres.URL = stack.Postgres.URL("triprize")
	servers.NoError(t, stack.Postgres.CreateDatabase(t.Context(), "triprize"))
	for _, path := range []string{archive, filepath.Dir(restored)} {
		servers.NoError(t, os.MkdirAll(path, 0o755))
	}
	giveToPostgres(t, archive)
	env := []string{"SUPERUSER_URL=" + settings.Postgres.URL, "ARCHIVE=" + archive, "BASE=" + base, "RESTORED=" + restored}

	paste(t, commands[0], env...)
	servers.NoError(t, stack.Postgres.RestartAfter(t.Context(), 0))
	db := servers.Pool(t, settings)
	servers.NoError(t, schema.Migrate(t.Context(), db))
	fixture.SellOut(t, db, fixture.Campaign(t, db, fixture.Draft(3)))
	paste(t, commands[1], env...)
	fixture.SellOut(t, db, fixture.Campaign(t, db, fixture.Draft(4))) // in the log alone
	until := servers.Value[time.Time](t, db, `SELECT clock_timestamp()`)
	fixture.SellOut(t, db, fixture.Campaign(t, db, fixture.Draft(2))) // too late
	last := servers.Value[string](t, db, `SELECT pg_walfile_name(pg_switch_wal())`)
	servers.Eventually(t, "the log is in the archive", func() bool {
		_, err := os.Stat(filepath.Join(archive, last))
		return err == nil
	})
	paste(t, commands[2], append(env, "TIME="+until.UTC().Format("2006-01-02 15:04:05.999999-07"))...)
	giveToPostgres(t, restored)
	at, _ := url.Parse(settings.Postgres.URL)
	password, _ := at.User.Password()
	servers.NoError(t, os.WriteFile(filepath.Join(dir, "new", "postgres.password"), []byte(password), 0o600))

	again := startStack(t, filepath.Join(dir, "new"))
	settings.Postgres.URL = again.Postgres.URL("triprize")
	back := servers.Pool(t, settings)
	servers.Eventually(t, "the recovery has ended", func() bool { return !servers.Value[bool](t, back, `SELECT pg_is_in_recovery()`) })
	if sold := servers.Value[int](t, back, `SELECT count(*)::int FROM positions WHERE state = 'sold'`); sold != 6+10 {
		t.Errorf("%d positions are sold", sold)
	}
	fixture.Sound(t, back)
}

// startNginx runs the example for nginx, without TLS and with one api, and returns where it listens instead of 443 and 80.
func startNginx(t *testing.T, api string) (listen, plain string) {
	listen, err := devstack.FreeAddress()
	servers.NoError(t, err)
	plain, err = devstack.FreeAddress()
	servers.NoError(t, err)
	example := regexp.MustCompile(`(?m)^ *(ssl_certificate.*|server 10\.0\.0\.12.*)\n`).ReplaceAllString(document(t, "../deploy/nginx/triprize.conf"), "")
	dir := t.TempDir()
	example = strings.NewReplacer("/var/lib/nginx", dir, "443 ssl http2", listen, "listen 80;", "listen "+plain+";", "10.0.0.11:8080", api).Replace(example)
	config := map[bool]string{true: "user root; "}[os.Getuid() == 0] + // its worker writes to the folder of the test
		"daemon off; pid nginx.pid; error_log stderr; events {} http { access_log off; client_body_temp_path body; " +
		"proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi; " + example + "}"
	servers.NoError(t, os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(config), 0o600))
	cmd := exec.Command("nginx", "-p", dir, "-c", "nginx.conf", "-e", "stderr")
	cmd.Stderr = t.Output()
	servers.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(terminate)
		servers.NoError(t, cmd.Wait())
	})
	servers.Eventually(t, "nginx listens", func() bool { conn, err := fleet.Dial(listen); return err == nil && conn.Close() == nil })
	return listen, plain
}

// throughNginx passes a sale, and a stream of it, through nginx.
func throughNginx(t *testing.T, dev about) {
	listen, plain := startNginx(t, "127.0.0.1:1") // nobody is there
	answer := func(at string) string {
		request, err := http.NewRequest(http.MethodPost, "http://"+at+"/v1/campaigns", nil)
		servers.NoError(t, err)
		response, err := http.DefaultTransport.RoundTrip(request)
		servers.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		body, _ := io.ReadAll(response.Body)
		return fmt.Sprint(response.StatusCode, response.Header["Content-Type"], response.Header["Retry-After"], response.Header["Strict-Transport-Security"], response.Header["Location"], strings.Count(string(body), `"code":"unavailable"`))
	}
	if away, moved := answer(listen), answer(plain); away != "503 [application/problem+json] [2] [max-age=31536000] [] 1" || moved != "308 [text/html] [] [] [https://127.0.0.1/v1/campaigns] 0" {
		t.Errorf("without an api nginx answers %s, at port 80 %s", away, moved)
	}
	listen, _ = startNginx(t, strings.TrimPrefix(dev.APIURL, "http://"))
	dev.APIURL = "http://" + listen
	servers.NoError(t, devstack.AwaitHTTP(t.Context(), dev.APIURL+"/readyz"))
	campaign := publishedAt(t, dev, 3)
	stream := (&fleet.System{T: t, URLs: []string{dev.APIURL}}).Listen(0, dev.AppKey, "/v1/campaigns/"+campaign+"/events", "")
	stream.WantEvent()
	dev.want(t, http.StatusOK, http.MethodPost, "/v1/campaigns/"+campaign+"/purchases", dev.AppKey,
		map[string]any{"user_id": "mina", "selection": map[string]any{"quantity": 1}, "payment": map[string]any{"method": "external"}})
	stream.WantEvent()

	dev.want(t, http.StatusOK, http.MethodPatch, "/v1/campaigns/"+campaign, dev.OperatorKey, map[string]any{"public_page": "page"})
	began := time.Now()
	answers := fleet.AtOnce(200, func(int) string { // of one request are all answers from the cache
		a := (&fleet.System{T: t, URLs: []string{dev.APIURL}}).Do(0, "", http.MethodGet, "/c/"+campaign+"/live", nil, nil)
		fleet.Want(t, http.StatusOK, a)
		return a.Header.Get("X-Request-Id")
	})
	slices.Sort(answers)
	if asked, most := len(slices.Compact(answers)), int(time.Since(began).Seconds()/2)+2; asked > most {
		t.Errorf("a crowd of 200 has asked the api %d times, want at most %d", asked, most)
	}
	dev.want(t, http.StatusOK, http.MethodPatch, "/v1/campaigns/"+campaign, dev.OperatorKey, map[string]any{"public_page": "none"})
	servers.Eventually(t, "a crowd sees that the page is closed", func() bool { // also those who come while nginx asks
		return !slices.Contains(fleet.AtOnce(200, func(int) int {
			return (&fleet.System{T: t, URLs: []string{dev.APIURL}}).Do(0, "", http.MethodGet, "/c/"+campaign+"/live", nil, nil).Status
		}), http.StatusOK)
	})
}

// startStack starts servers whose data is in a folder.
func startStack(t *testing.T, dir string) *devstack.Stack {
	t.Helper()
	stack, err := devstack.Start(t.Context(), devstack.Options{Dir: dir, Unsafe: true})
	servers.NoError(t, err)
	t.Cleanup(func() {
		servers.NoError(t, stack.Stop())
	})
	return stack
}

// giveToPostgres gives a folder to the user of Postgres, which never runs as root.
func giveToPostgres(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	owner, err := user.Lookup("postgres")
	servers.NoError(t, err)
	uid, _ := strconv.Atoi(owner.Uid)
	gid, _ := strconv.Atoi(owner.Gid)
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, uid, gid)
	})
	servers.NoError(t, err)
}
