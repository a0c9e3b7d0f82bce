package drandsim_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"triprize/internal/domain/beacon"
	"triprize/internal/testkit/servers"
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

// The randomness is the hash of the signature's bytes. If the same point had two
// encodings, a relay could choose between two outcomes.
func TestASignatureHasOneEncoding(t *testing.T) {
	t.Parallel()
	modulus, _ := new(big.Int).SetString("1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab", 16)
	chain := chainOf(t, "s")
	for number := uint64(1); ; number++ {
		signature := chain.Sign(number).Signature
		flags, x := signature[0]&0xe0, bytes.Clone(signature)
		x[0] &^= 0xe0
		larger := new(big.Int).Add(new(big.Int).SetBytes(x), modulus)
		if larger.BitLen() > 381 {
			continue // it has no room beside the flags; another round has
		}
		twin := larger.FillBytes(make([]byte, beacon.SignatureSize))
		twin[0] |= flags
		if _, err := chain.Verify(number, twin); !errors.Is(err, beacon.ErrSignature) {
			t.Errorf("round %d: %x passes beside %x", number, twin, signature)
		}
		for bit := range 8 * beacon.SignatureSize {
			if bit%61 != 0 && bit >= 3 { // the flags, and some of the others
				continue
			}
			flipped := bytes.Clone(signature)
			flipped[bit/8] ^= 0x80 >> (bit % 8)
			if _, err := chain.Verify(number, flipped); err == nil {
				t.Errorf("round %d passes with bit %d flipped", number, bit)
			}
		}
		return
	}
}

func TestChainsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	seed := []byte(strings.Repeat("s", 32))
	for name, err := range map[string]error{
		"a short seed":    second(drandsim.NewChain(seed[:31], genesis, time.Second)),
		"half a second":   second(drandsim.NewChain(seed, genesis, time.Second/2)),
		"a fraction":      second(drandsim.NewChain(seed, genesis, 3*time.Second/2)),
		"before 1970":     second(drandsim.NewChain(seed, time.Unix(-1, 0), time.Second)),
		"longer than fit": second(drandsim.NewChain(seed, genesis, (1<<32)*time.Second)),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	good := chainOf(t, "s").Chain
	for name, change := range map[string]func(c *beacon.Chain){
		"as it is": nil, "a short key": func(c *beacon.Chain) { c.PublicKey = c.PublicKey[1:] }, "no key": func(c *beacon.Chain) { c.PublicKey = make([]byte, 96) },
		"the identity": func(c *beacon.Chain) { c.PublicKey = append([]byte{0xc0}, make([]byte, 95)...) },
		"a long seed":  func(c *beacon.Chain) { c.GenesisSeed = append(bytes.Clone(c.GenesisSeed), 0) },
	} {
		c := good
		if change != nil {
			change(&c)
		}
		if err := c.Check(); (err == nil) != (change == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestARelayAnswersAsDrandsDo(t *testing.T) {
	t.Parallel()
	n, seconds := start(t, "127.0.0.1:0")
	hash := n.Chain().Hash()
	name := hex.EncodeToString(hash[:])
	if status, body := call(t, http.MethodGet, n.URLs()[0]+"/chains", ""); status != http.StatusOK || strings.TrimSpace(body) != `["`+name+`"]` {
		t.Error(status, body)
	}
	for _, path := range []string{"/info", "/" + name + "/info"} {
		var info struct {
			PublicKey   string `json:"public_key"`
			Period      int
			GenesisTime int64  `json:"genesis_time"`
			Seed        string `json:"groupHash"`
			Hash        string
			SchemeID    string
			Metadata    struct{ BeaconID string }
		}
		status, body := call(t, http.MethodGet, n.URLs()[0]+path, "")
		if err := json.Unmarshal([]byte(body), &info); err != nil || status != http.StatusOK {
			t.Fatal(status, body, err)
		}
		told := beacon.Chain{GenesisTime: info.GenesisTime, ID: info.Metadata.BeaconID, PeriodS: info.Period}
		told.PublicKey, _ = hex.DecodeString(info.PublicKey)
		told.GenesisSeed, _ = hex.DecodeString(info.Seed)
		if told.Hash() != hash || info.Hash != name || info.SchemeID != "bls-unchained-g1-rfc9380" {
			t.Errorf("%s is of another chain: %s", path, body)
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

func TestARelayHasTheFaultsThatItIsTold(t *testing.T) {
	t.Parallel()
	n, seconds := start(t, "127.0.0.1:0", "127.0.0.1:0")
	seconds.Store(200) // round 101
	tell := func(faults string) {
		t.Helper()
		if status, body := call(t, http.MethodPut, n.URLs()[0]+"/control/faults", faults); status != http.StatusOK {
			t.Fatal(status, body)
		}
	}
	for faults, want := range map[string]struct {
		number   uint64
		verifies bool
	}{
		`{"late_s": 10}`:                    {96, true},
		`{"late_rounds": 100}`:              {1, true},
		`{"late_s": 10, "late_rounds": 10}`: {86, true},
		`{"forked": true}`:                  {101, false},
		`{"wrong": "random"}`:               {101, false},
		`{"wrong": "other-round"}`:          {101, false},
		`{"wrong": "randomness"}`:           {101, false},
		`{"wrong": "number"}`:               {100, true},
		`{}`:                                {101, true},
	} {
		tell(faults)
		if status, got, verifies := roundAt(t, n, 0, "latest"); status != http.StatusOK || got.Round != want.number || verifies != want.verifies {
			t.Errorf("%s: %d, %+v, %v", faults, status, got, verifies)
		}
	}
	tell(`{"late_rounds": 101}`)
	if status, _, _ := roundAt(t, n, 0, "latest"); status != http.StatusTooEarly {
		t.Errorf("behind by all rounds: %d", status)
	}
	tell(`{"away": "error"}`)
	if status, _, _ := roundAt(t, n, 0, "1"); status != http.StatusInternalServerError {
		t.Errorf("away: %d", status)
	}
	if _, got, verifies := roundAt(t, n, 1, "latest"); got.Round != 101 || !verifies {
		t.Error("the other relay has the faults, too")
	}
	tell(`{"away": "html"}`)
	if status, body := call(t, http.MethodGet, n.URLs()[0]+"/public/1", ""); status != http.StatusOK || !strings.HasPrefix(body, "<!DOCTYPE") {
		t.Error(status, body)
	}
	if status, body := call(t, http.MethodGet, n.URLs()[0]+"/control", ""); status != http.StatusOK || !strings.Contains(body, `"away":"html"`) || !strings.Contains(body, `"requests":12`) {
		t.Error(status, body)
	}
	if status, body := call(t, http.MethodDelete, n.URLs()[0]+"/control/faults", ""); status != http.StatusOK || !strings.Contains(body, `"faults":{}`) || n.Relays()[0].Faults() != (drandsim.Faults{}) {
		t.Error(status, body)
	}
}

func TestFaultsThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	n, _ := start(t, "127.0.0.1:0")
	for _, faults := range []string{``, `[]`, `{"wrong": "randm"}`, `{"away": "far"}`, `{"late": 1}`, `{"late_s": -1}`, `{"late_rounds": 2000000000}`, `{} {}`, `{"wrong": "` + strings.Repeat("x", 5000) + `"}`} {
		if status, body := call(t, http.MethodPut, n.URLs()[0]+"/control/faults", faults); status != http.StatusBadRequest || !strings.Contains(body, "error") {
			t.Errorf("%.40s: %d %s", faults, status, body)
		}
	}
	if n.Relays()[0].Faults() != (drandsim.Faults{}) {
		t.Error("they have an effect")
	}
}

func TestANetworkIsForThisMachineOnly(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "example.com:0", "127.0.0.1"} {
		if n, err := drandsim.Start(t.Context(), drandsim.Settings{Chain: chainOf(t, "s")}, "127.0.0.1:0", address); err == nil {
			t.Errorf("%s: accepted", address)
			_ = n.Close()
		}
	}
	if _, err := drandsim.Start(t.Context(), drandsim.Settings{}); err == nil {
		t.Error("a network without a chain")
	}
}

func TestANetworkThatIsClosedEndsWhatHangs(t *testing.T) {
	t.Parallel()
	for _, away := range []string{drandsim.AwayHang, drandsim.AwayEndless} {
		n, err := drandsim.Start(t.Context(), drandsim.Settings{Chain: chainOf(t, "s")}, "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Relays()[0].SetFaults(drandsim.Faults{Away: away}); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			answer, err := http.Get(n.URLs()[0] + "/public/1")
			if err == nil {
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
			}
		}()
		servers.Eventually(t, "the relay is asked", func() bool { return n.Relays()[0].Requests() > 0 })
		if err := n.Close(); err != nil {
			t.Errorf("%s: %v", away, err)
		}
		<-ended
	}
}
