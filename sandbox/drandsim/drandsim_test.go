package drandsim_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
)

var genesis = time.Unix(1_700_000_000, 0)

// start starts relays at the addresses; their clock is what the second result says.
func start(t *testing.T, addresses ...string) (*drandsim.Network, *atomic.Int64) {
	t.Helper()
	seconds := new(atomic.Int64) // since the genesis
	clock := func() time.Time { return genesis.Add(time.Duration(seconds.Load()) * time.Second) }
	chain, err := drandsim.NewChain([]byte(strings.Repeat("s", 32)), genesis, 2*time.Second)
	servers.NoError(t, err)
	n, err := drandsim.Start(t.Context(), drandsim.Settings{Chain: chain, Clock: clock}, addresses...)
	servers.NoError(t, err)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n, seconds
}

// get returns what a relay answers: its status, and what it says.
func get(t *testing.T, n *drandsim.Network, path string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.URLs()[0]+path, nil)
	servers.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	servers.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(answer.Body)
	servers.NoError(t, err)
	return fmt.Sprint(answer.StatusCode, " ", strings.TrimSpace(string(data)))
}

func TestARelayAnswersAsDrandsDo(t *testing.T) {
	t.Parallel()
	n, seconds := start(t, "127.0.0.1:0")
	hash := n.Chain().Hash()
	name := hex.EncodeToString(hash[:])
	for _, c := range []struct {
		seconds    int64
		path, want string // the beginning of the answer; #n: that it is the round n, and verifies
	}{
		{0, "/chains", `200 ["` + name + `"]`}, {0, "/info", "200 {"}, {0, "/" + name + "/info", "200 {"},
		{0, "/" + name + "/public/2", "425"}, {-1, "/" + name + "/public/latest", "425"}, // before they are due
		{9, "/" + name + "/public/1", "#1"}, {9, "/" + name + "/public/5", "#5"}, {9, "/" + name + "/public/latest", "#5"}, {9, "/public/latest", "#5"},
		{9, "/" + name + "/public/6", "425"}, {9, "/" + name + "/public/0", "400"}, {9, "/" + name + "/public/-1", "400"}, {9, "/" + name + "/public/newest", "400"},
		{9, "/" + strings.Repeat("00", 32) + "/public/1", "404"},
	} {
		seconds.Store(c.seconds)
		got := get(t, n, c.path)
		if strings.HasSuffix(c.path, "/info") && (!strings.Contains(got, name) || !strings.Contains(got, "bls-unchained-g1-rfc9380")) {
			t.Errorf("%s: %s", c.path, got)
		}
		var round struct {
			Round                 uint64
			Randomness, Signature string
		}
		if _, isRound := strings.CutPrefix(c.want, "#"); isRound {
			if err := json.Unmarshal([]byte(strings.TrimPrefix(got, "200 ")), &round); err != nil {
				t.Fatal(got, err)
			}
			signature, err := hex.DecodeString(round.Signature)
			verified, wrong := n.Chain().Verify(round.Round, signature)
			if err == nil && wrong == nil && hex.EncodeToString(verified.Randomness[:]) == round.Randomness {
				got = fmt.Sprint("#", round.Round)
			}
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s at %d s: %s, want %s", c.path, c.seconds, got, c.want)
		}
	}
}
