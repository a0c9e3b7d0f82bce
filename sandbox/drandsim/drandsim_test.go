package drandsim_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"triprize.example/draw/beacon"
	"triprize/sandbox/drandsim"
)

var genesis = time.Unix(1_700_000_000, 0)

func chainOf(t *testing.T, seed string) *drandsim.Chain {
	t.Helper()
	chain, err := drandsim.NewChain([]byte(strings.Repeat(seed, 32)), genesis, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// start starts relays at the addresses; their clock is what the second result says.
func start(t *testing.T, addresses ...string) (*drandsim.Network, *atomic.Int64) {
	t.Helper()
	seconds := new(atomic.Int64) // since the genesis
	clock := func() time.Time { return genesis.Add(time.Duration(seconds.Load()) * time.Second) }
	n, err := drandsim.Start(t.Context(), drandsim.Settings{Chain: chainOf(t, "s"), Clock: clock}, addresses...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n, seconds
}

// call sends a request and returns status and body.
func call(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(data)
}

type round struct {
	Round                 uint64
	Randomness, Signature string
}

// roundAt fetches a round, by number or latest, and tells whether it verifies.
func roundAt(t *testing.T, n *drandsim.Network, relay int, which string) (status int, got round, verifies bool) {
	t.Helper()
	hash := n.Chain().Hash()
	status, body := call(t, http.MethodGet, n.URLs()[relay]+"/"+hex.EncodeToString(hash[:])+"/public/"+which, "")
	if status != http.StatusOK {
		return status, got, false
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	signature, err := hex.DecodeString(got.Signature)
	if err != nil {
		t.Fatal(err)
	}
	verified, err := n.Chain().Verify(got.Round, signature)
	return status, got, err == nil && hex.EncodeToString(verified.Randomness[:]) == got.Randomness
}

func TestARoundOfATestChainVerifiesOnItAndOnNoOther(t *testing.T) {
	t.Parallel()
	chain, again, other := chainOf(t, "s"), chainOf(t, "s"), chainOf(t, "x")
	if chain.Hash() != again.Hash() || chain.Hash() == other.Hash() || chain.Hash() == beacon.Quicknet().Hash() {
		t.Error("the same seed is the same chain, and another one another")
	}
	signed := chain.Sign(5)
	if verified, err := again.Verify(5, signed.Signature); err != nil || verified.Randomness != signed.Randomness {
		t.Error(err)
	}
	fork, err := chain.Fork()
	if err != nil || fork.Hash() != chain.Hash() {
		t.Fatal("a fork says that it is the chain", err)
	}
	for name, signature := range map[string][]byte{
		"a fork's": fork.Sign(5).Signature, "another chain's": other.Sign(5).Signature, "another round's": chain.Sign(6).Signature,
		"the identity": append([]byte{0xc0}, make([]byte, 47)...), "none": nil,
	} {
		if _, err := chain.Verify(5, signature); !errors.Is(err, beacon.ErrSignature) {
			t.Errorf("the signature is %s: %v", name, err)
		}
	}
}

func TestARelayAnswersAsDrandsDo(t *testing.T) {
	t.Parallel()
	n, seconds := start(t, "127.0.0.1:0")
	hash := n.Chain().Hash()
	name := hex.EncodeToString(hash[:])
	if status, body := call(t, http.MethodGet, n.URLs()[0]+"/chains", ""); status != http.StatusOK || strings.TrimSpace(body) != `["`+name+`"]` {
		t.Error(status, body)
	}
	for _, path := range []string{"/info", "/" + name + "/info"} {
		if status, body := call(t, http.MethodGet, n.URLs()[0]+path, ""); status != http.StatusOK || !strings.Contains(body, name) || !strings.Contains(body, "bls-unchained-g1-rfc9380") {
			t.Errorf("%s: %d, %s", path, status, body)
		}
	}
	if status, _, _ := roundAt(t, n, 0, "2"); status != http.StatusTooEarly {
		t.Errorf("round 2 at the genesis: %d", status)
	}
	seconds.Store(9) // the fifth round is due
	for which, number := range map[string]uint64{"1": 1, "5": 5, "latest": 5} {
		if status, got, verifies := roundAt(t, n, 0, which); status != http.StatusOK || got.Round != number || !verifies {
			t.Errorf("round %s: %d, %+v", which, status, got)
		}
	}
	if status, body := call(t, http.MethodGet, n.URLs()[0]+"/public/latest", ""); status != http.StatusOK || !strings.Contains(body, `"round":5`) {
		t.Error(status, body)
	}
	for which, want := range map[string]int{"6": http.StatusTooEarly, "0": http.StatusBadRequest, "-1": http.StatusBadRequest, "newest": http.StatusBadRequest} {
		if status, _, _ := roundAt(t, n, 0, which); status != want {
			t.Errorf("round %s: %d", which, status)
		}
	}
	if status, _ := call(t, http.MethodGet, n.URLs()[0]+"/"+strings.Repeat("00", 32)+"/public/1", ""); status != http.StatusNotFound {
		t.Errorf("another chain: %d", status)
	}
	seconds.Store(-1)
	if status, _, _ := roundAt(t, n, 0, "latest"); status != http.StatusTooEarly {
		t.Errorf("the latest before the genesis: %d", status)
	}
}
