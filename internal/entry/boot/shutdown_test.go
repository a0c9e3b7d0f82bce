package boot

import (
	"context"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"triprize/devkit/devstack"
	"triprize/internal/key"
	"triprize/internal/testkit/servers"
)

// busy starts an api and holds up a request in the database until it is
// released. The status of its answer, or 0 when there is none, is sent to answered.
func busy(t *testing.T, env ...string) (api *actor, address string, release func(), answered chan int) {
	t.Helper()
	settings := servers.Settings(t)
	db := servers.Pool(t, settings)
	key, err := key.Create(t.Context(), db, key.Operator, "ops")
	if err != nil {
		t.Fatal(err)
	}
	address = freeAddress(t)
	api = act(t, "api", append(append(environment(settings), "TRIPRIZE_API_LISTEN="+address,
		"TRIPRIZE_POSTGRES_LOCK_TIMEOUT=10m", "TRIPRIZE_POSTGRES_STATEMENT_TIMEOUT=10m"), env...))
	api.hear(t, "started")
	if err := devstack.AwaitHTTP(t.Context(), "http://"+address+"/readyz"); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release = func() { _ = tx.Rollback(context.Background()) }
	t.Cleanup(release)
	servers.Exec(t, tx, `SET LOCAL idle_in_transaction_session_timeout = 0; LOCK TABLE campaigns`)
	answered = make(chan int, 1)
	go func() {
		request, _ := http.NewRequest(http.MethodGet, "http://"+address+"/v1/campaigns", nil)
		request.Header.Set("Authorization", "Bearer "+key)
		response, err := (&http.Client{Timeout: servers.Patience}).Do(request)
		if err != nil {
			answered <- 0
			return
		}
		_ = response.Body.Close()
		answered <- response.StatusCode
	}()
	servers.AwaitBlocked(t, db, 1)
	select {
	case status := <-answered:
		t.Fatalf("the request was not held up: %d", status)
	default:
	}
	return api, address, release, answered
}

func TestAShutdownFinishesTheRequestAtHandAndTakesNoOther(t *testing.T) {
	t.Parallel()
	api, address, release, answered := busy(t, "TRIPRIZE_API_SHUTDOWN_TIMEOUT=10m")
	api.signal(t, syscall.SIGTERM)
	servers.Eventually(t, "it takes no more connections", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	select {
	case status := <-answered:
		t.Errorf("the request got %d before it could be done", status)
	default:
	}
	release()
	if status := <-answered; status != http.StatusOK {
		t.Errorf("the request got %d", status)
	}
	if _, status := api.end(t); !status.Exited() || status.ExitStatus() != 0 {
		t.Errorf("status %x", status)
	}
}

func TestAShutdownKeepsItsLimitWhenARequestDoesNotEnd(t *testing.T) {
	t.Parallel()
	api, _, release, answered := busy(t, "TRIPRIZE_API_SHUTDOWN_TIMEOUT=200ms")
	api.signal(t, syscall.SIGTERM)
	_, status := api.end(t) // before the request, which is held up still
	if status.ExitStatus() != 0 || !strings.Contains(api.stderr.String(), "cut off at shutdown") {
		t.Errorf("status %d, and nobody was told: %s", status.ExitStatus(), api.stderr.String())
	}
	release()
	<-answered
}
