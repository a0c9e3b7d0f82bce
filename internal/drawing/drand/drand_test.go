package drand_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize.example/draw/beacon"
	"triprize/internal/drawing/drand"
	"triprize/internal/platform/config"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
)

// due is the newest round of the chains of these tests, by their clock.
const due = 100

// relays starts n relays of a chain whose clock stands still at round due.
func relays(t *testing.T, n int) *drandsim.Network {
	t.Helper()
	genesis := time.Unix(1_700_000_000, 0)
	chain, err := drandsim.NewChain([]byte(strings.Repeat("s", 32)), genesis, time.Second)
	servers.NoError(t, err)
	network, err := drandsim.Start(t.Context(), drandsim.Settings{Chain: chain, Clock: func() time.Time { return genesis.Add((due - 1) * time.Second) }},
		slices.Repeat([]string{"127.0.0.1:0"}, n)...)
	servers.NoError(t, err)
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	return network
}

// set sets the faults of relays.
func set(t *testing.T, f drandsim.Faults, some ...*drandsim.Relay) {
	t.Helper()
	for _, r := range some {
		servers.NoError(t, r.SetFaults(f))
	}
}

// serve is a relay that does what a function says.
func serve(t testing.TB, handle http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return server.URL
}

// asking is a client with its metrics, that asks about one chain.
type asking struct {
	*drand.Client

	t        *testing.T
	registry *prometheus.Registry
	chain    beacon.Chain
}

// client returns a client of a network's relays, or of other ones, whose bounds in time no machine is too slow for.
func client(t *testing.T, n *drandsim.Network, urls ...string) asking {
	t.Helper()
	if len(urls) == 0 {
		urls = n.URLs()
	}
	return clientOf(t, n.Chain().Chain, config.Beacon{Relays: strings.Join(urls, ","), Timeout: time.Hour})
}

func clientOf(t *testing.T, chain beacon.Chain, settings config.Beacon) asking {
	t.Helper()
	registry := prometheus.NewRegistry()
	c, err := drand.New(settings, registry, servers.Logger(t))
	servers.NoError(t, err)
	t.Cleanup(c.Close)
	return asking{c, t, registry, chain}
}

// count returns how many answers had an outcome, those of all relays together.
func (a asking) count(outcome string) int {
	a.t.Helper()
	return int(servers.Counted(a.t, a.registry, "triprize_beacon_answers_total", outcome))
}

// wants fails the test unless it is given a round.
func (a asking) wants(number uint64) {
	a.t.Helper()
	got, err := a.Round(a.t.Context(), a.chain, number)
	a.is(number, got, err)
}

// wantsLatest fails the test unless a round is the newest.
func (a asking) wantsLatest(number uint64) {
	a.t.Helper()
	got, err := a.Latest(a.t.Context(), a.chain)
	a.is(number, got, err)
}

func (a asking) is(number uint64, got beacon.Round, err error) {
	a.t.Helper()
	servers.NoError(a.t, err)
	verified, err := a.chain.Verify(number, got.Signature)
	if err != nil || got.Number != number || got.Randomness != verified.Randomness {
		a.t.Errorf("got round %d, %x: %v", got.Number, got.Signature, err)
	}
}

// wantsNone fails the test when it is given a round, or told that it is not there yet.
func (a asking) wantsNone(number uint64) error {
	a.t.Helper()
	got, err := a.Round(a.t.Context(), a.chain, number)
	a.none(got, err)
	return err
}

func (a asking) none(got beacon.Round, err error) {
	a.t.Helper()
	if err == nil || errors.Is(err, drand.ErrNotYet) || got.Number != 0 || got.Signature != nil || got.Randomness != [32]byte{} {
		a.t.Errorf("got %+v, %v", got, err)
	}
}

// A relay that is away or lies is counted, and never believed. One honest relay is enough.
func TestWhateverIsWrongWithRelaysIsCountedAndOneGoodRelayIsEnough(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults  drandsim.Faults
		outcome string
	}{
		"refuses":              {drandsim.Faults{Away: drandsim.AwayRefuse}, "unavailable"},
		"fails":                {drandsim.Faults{Away: drandsim.AwayError}, "refused"},
		"a page":               {drandsim.Faults{Away: drandsim.AwayHTML}, "unreadable"},
		"an endless answer":    {drandsim.Faults{Away: drandsim.AwayEndless}, "unreadable"},
		"random bytes":         {drandsim.Faults{Wrong: drandsim.WrongRandom}, "lie"},
		"another signature":    {drandsim.Faults{Wrong: drandsim.WrongOtherRound}, "lie"},
		"another number":       {drandsim.Faults{Wrong: drandsim.WrongNumber}, "lie"},
		"another randomness":   {drandsim.Faults{Wrong: drandsim.WrongRandomness}, "lie"},
		"signed by a stranger": {drandsim.Faults{Forked: true}, "lie"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := relays(t, 3)
			set(t, c.faults, n.Relays()...)
			a := client(t, n)
			err := a.wantsNone(due - 10)
			for _, url := range n.URLs() {
				if host := strings.TrimPrefix(url, "http://"); !strings.Contains(err.Error(), host) {
					t.Errorf("%q does not name %s", err, host)
				}
			}
			if a.count(c.outcome) != 3 || a.count("") != 3 {
				t.Errorf("%d answers are counted as %s, of %d", a.count(c.outcome), c.outcome, a.count(""))
			}
			if c.faults.Wrong != drandsim.WrongNumber { // of the latest round no number is asked for
				a.none(a.Latest(t.Context(), a.chain))
			}
			set(t, drandsim.Faults{}, n.Relays()[2])
			for number := uint64(1); number < 6; number++ { // the first relay to be asked is chosen at random
				a.wants(number)
			}
		})
	}
}

func TestAnAnswerThatIsNoRoundIsUnreadableAndNoLie(t *testing.T) {
	t.Parallel()
	n := relays(t, 1)
	signature := strings.Repeat("00", beacon.SignatureSize)
	for _, body := range []string{`{"message":"rate limited"}`, `{"round":7}`, `{"round":7,"signature":"` + signature[2:] + `"}`, `{"signature":"` + signature + `"}`, `null`} {
		a := client(t, n, serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		if _ = a.wantsNone(7); a.count("unreadable") != 1 {
			t.Errorf("%s: %d lies", body, a.count("lie"))
		}
	}
}

func TestARelayThatHangsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	n := relays(t, 3)
	set(t, drandsim.Faults{Away: drandsim.AwayHang}, n.Relays()[:2]...)
	a := client(t, n) // each may take an hour
	a.SetPatience(time.Millisecond)
	for number := uint64(1); number < 6; number++ {
		a.wants(number)
	}
	a.wantsLatest(due)
	if a.count("unavailable") != 0 {
		t.Error("a question that was given up is counted as an answer")
	}
}

func TestAQuestionEndsWhenAllRelaysHang(t *testing.T) {
	t.Parallel()
	n := relays(t, 2)
	set(t, drandsim.Faults{Away: drandsim.AwayHang}, n.Relays()...)
	a := clientOf(t, n.Chain().Chain, config.Beacon{Relays: strings.Join(n.URLs(), ","), Timeout: 50 * time.Millisecond})
	_ = a.wantsNone(due)
	a.none(a.Latest(t.Context(), a.chain))
	if a.count("unavailable") != 4 {
		t.Errorf("%d are counted as unavailable", a.count("unavailable"))
	}
}

func TestARoundThatIsNotDueIsNotThereYet(t *testing.T) {
	t.Parallel()
	n := relays(t, 3)
	a := client(t, n)
	if _, err := a.Round(t.Context(), a.chain, due+1); !errors.Is(err, drand.ErrNotYet) || a.count("not-yet") != 3 {
		t.Errorf("got %v, %d times", err, a.count("not-yet"))
	}
	// One relay that says so is enough to know it, and no reason to believe the others.
	set(t, drandsim.Faults{Away: drandsim.AwayError}, n.Relays()[0])
	set(t, drandsim.Faults{LateRounds: 5}, n.Relays()[1])
	set(t, drandsim.Faults{Forked: true}, n.Relays()[2])
	if got, err := a.Round(t.Context(), a.chain, due); !errors.Is(err, drand.ErrNotYet) || got.Signature != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	// A relay that is behind does not keep a round from us that another has.
	set(t, drandsim.Faults{}, n.Relays()[2])
	a.wants(due)
}

func TestARelayThatAnswers404DoesNotHaveTheRoundAndARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	n := relays(t, 1)
	a := client(t, n, serve(t, http.NotFound))
	if _, err := a.Round(t.Context(), a.chain, 1); !errors.Is(err, drand.ErrNotYet) {
		t.Error(err)
	}
	_ = a.wantsNone(0)
	a = client(t, n, serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, n.URLs()[0]+r.URL.Path, http.StatusFound)
	}))
	if _ = a.wantsNone(due); a.count("refused") != 1 {
		t.Error("the redirect is not counted")
	}
}

func TestTheLatestRoundIsTheNewestOfAllRelays(t *testing.T) {
	t.Parallel()
	n := relays(t, 4)
	set(t, drandsim.Faults{LateS: 30}, n.Relays()[0])
	set(t, drandsim.Faults{LateRounds: 7}, n.Relays()[1])
	set(t, drandsim.Faults{Forked: true}, n.Relays()[2])
	release := make(chan struct{})
	last := serve(t, func(w http.ResponseWriter, r *http.Request) { <-release; n.Relays()[3].ServeHTTP(w, r) })
	a := client(t, n, append(n.URLs()[:3], last)...)
	answered := make(chan struct{})
	var got beacon.Round
	var err error
	go func() { defer close(answered); got, err = a.Latest(t.Context(), a.chain) }()
	servers.Eventually(t, "those that are behind have answered", func() bool { return a.count("ok") == 2 })
	close(release)
	<-answered
	a.is(due, got, err)
	set(t, drandsim.Faults{Away: drandsim.AwayRefuse}, n.Relays()[3])
	a.wantsLatest(due - 7)
}

func TestManyWhoWaitForOneRoundShareOneQuestion(t *testing.T) {
	t.Parallel()
	const many = 40
	n := relays(t, 1)
	var asked atomic.Int64
	release := make(chan struct{})
	a := client(t, n, serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		<-release
		n.Relays()[0].ServeHTTP(w, r)
	}))
	gone, leave := context.WithCancel(t.Context()) // who begins the question and leaves
	left := make(chan error, 1)
	go func() { _, err := a.Round(gone, a.chain, due); left <- err }()
	servers.Eventually(t, "the question is asked", func() bool { return asked.Load() == 1 })
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who has left gets %v", err)
	}
	var all sync.WaitGroup
	for range many {
		all.Go(func() { a.wants(due) })
	}
	servers.Eventually(t, "all wait for the same answer", func() bool { return waiting(t) >= many })
	close(release)
	all.Wait()
	if asked.Load() != 1 {
		t.Errorf("the relay was asked %d times", asked.Load())
	}
}

// waiting counts the goroutines that wait for the answer of a shared question.
func waiting(t *testing.T) (n int) {
	t.Helper()
	var stacks strings.Builder
	servers.NoError(t, pprof.Lookup("goroutine").WriteTo(&stacks, 1))
	for _, entry := range strings.Split(stacks.String(), "\n\n") { // "40 @ 0x…\n#	…"
		if strings.Contains(entry, "sync.(*WaitGroup).Wait") && strings.Contains(entry, "singleflight.(*Group).Do+") {
			var count int
			if _, err := fmt.Sscanf(entry[strings.LastIndex(entry[:strings.Index(entry, " @ ")], "\n")+1:], "%d @", &count); err == nil {
				n += count
			}
		}
	}
	return n
}

func TestQuestionsToOneRelayAreBounded(t *testing.T) {
	t.Parallel()
	n := relays(t, 1)
	var inside, most atomic.Int64
	release := make(chan struct{})
	a := client(t, n, serve(t, func(w http.ResponseWriter, r *http.Request) {
		for now := inside.Add(1); ; {
			if before := most.Load(); now <= before || most.CompareAndSwap(before, now) {
				break
			}
		}
		<-release
		inside.Add(-1)
		n.Relays()[0].ServeHTTP(w, r)
	}))
	var all sync.WaitGroup
	for number := uint64(1); number <= 3*drand.AtOnce; number++ {
		all.Go(func() { a.wants(number) })
	}
	servers.Eventually(t, "as many as may are under way", func() bool { return inside.Load() == drand.AtOnce })
	close(release)
	all.Wait()
	if most.Load() > drand.AtOnce {
		t.Errorf("%d questions were under way at once", most.Load())
	}
}

func TestAClientThatIsClosedHasEndedItsQuestions(t *testing.T) {
	t.Parallel()
	n := relays(t, 2)
	set(t, drandsim.Faults{Away: drandsim.AwayHang}, n.Relays()...)
	a := client(t, n)
	ended := make(chan error, 1)
	go func() { _, err := a.Round(t.Context(), a.chain, due); ended <- err }()
	servers.Eventually(t, "a relay is asked", func() bool { return n.Relays()[0].Requests()+n.Relays()[1].Requests() > 0 })
	a.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := a.Latest(t.Context(), a.chain); err == nil {
		t.Error("a closed client asks")
	}
}

func TestAClientNeedsARelay(t *testing.T) {
	t.Parallel()
	if _, err := drand.New(config.Beacon{Timeout: time.Second}, nil, servers.Logger(t)); err == nil {
		t.Error("accepted")
	}
}

func TestPublishedRoundsOfQuicknetAreAcceptedAndNoOthers(t *testing.T) {
	t.Parallel()
	signatures := map[string]string{
		"657413": "b713718a38ae728dfd477991af2822e08d2f305e47718cef9f7848ce4050e7be41076862b98fad56e91a6b85b89cd97b",
		"123":    "b75c69d0b72a5d906e854e808ba7e2accb1542ac355ae486d591aa9d43765482e26cd02df835d3546d23c4b13e0dfc92",
		"657414": "b713718a38ae728dfd477991af2822e08d2f305e47718cef9f7848ce4050e7be41076862b98fad56e91a6b85b89cd97b", // of 657413
	}
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		number, found := strings.CutPrefix(r.URL.Path, "/52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971/public/")
		if !found {
			t.Errorf("asked for %s", r.URL.Path)
		}
		fmt.Fprintf(w, `{"round":%s,"signature":%q,"previous_signature":"","more":[1]}`, number, signatures[number])
	})
	a := clientOf(t, beacon.Quicknet(), config.Beacon{Relays: url, Timeout: time.Hour})
	for number, randomness := range map[uint64]string{
		657413: "fc1873a13f3545aeade8401532ef5519920652eee6b0d2b19ca12643b87b3587",
		123:    "fb8f7bc29bf24db51871ec8c79f3a1e4bd0557bc0dfcee9ed1d924e69d1c60dc",
	} {
		got, err := a.Round(t.Context(), a.chain, number)
		a.is(number, got, err)
		if hex.EncodeToString(got.Randomness[:]) != randomness {
			t.Errorf("round %d has the randomness %x", number, got.Randomness)
		}
	}
	if err := a.wantsNone(657414); !errors.Is(err, beacon.ErrSignature) {
		t.Error(err)
	}
}

func TestALieIsLoggedOnceInAWhileAndNamesTheRelay(t *testing.T) {
	t.Parallel()
	n := relays(t, 1)
	set(t, drandsim.Faults{Forked: true}, n.Relays()...)
	var log bytes.Buffer
	c, err := drand.New(config.Beacon{Relays: n.URLs()[0], Timeout: time.Hour}, nil, slog.New(slog.NewTextHandler(&log, nil)))
	servers.NoError(t, err)
	const asked = 20
	for number := range uint64(asked) {
		if got, err := c.Round(t.Context(), n.Chain().Chain, number+1); err == nil {
			t.Errorf("got %+v", got)
		}
	}
	c.Close()
	lines := strings.Count(log.String(), "\n")
	if lines < 1 || lines >= asked || !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "relay="+strings.TrimPrefix(n.URLs()[0], "http://")) {
		t.Errorf("%d lies are these lines:\n%s", asked, &log)
	}
}

// Every answer of a relay is a round of the chain or an error.
func FuzzAnswersOfRelays(f *testing.F) {
	chain, err := drandsim.NewChain([]byte(strings.Repeat("s", 32)), time.Unix(1_700_000_000, 0), time.Second)
	servers.NoError(f, err)
	good := chain.Sign(7)
	f.Add(fmt.Appendf(nil, `{"round":7,"randomness":"%x","signature":"%x"}`, good.Randomness, good.Signature))
	f.Add(fmt.Appendf(nil, `{"round":7,"signature":"%x"}`, good.Signature))
	f.Add(fmt.Appendf(nil, `{"round":8,"signature":"%x"}`, good.Signature))
	f.Add(fmt.Appendf(nil, `{"round":7,"round":8,"signature":"%X","signature":null}`, good.Signature))
	f.Add([]byte(`{"round":18446744073709551615,"signature":""}`))
	f.Add([]byte(`{"round":-1}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`<html>`))
	body := make(chan []byte, 1)
	url := serve(f, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(<-body) })
	c, err := drand.New(config.Beacon{Relays: url, Timeout: servers.Patience}, nil, slog.New(slog.DiscardHandler))
	servers.NoError(f, err)
	f.Cleanup(c.Close)
	f.Fuzz(func(t *testing.T, sent []byte) {
		body <- sent
		got, err := c.Round(t.Context(), chain.Chain, 7)
		if err == nil && (got.Number != 7 || !bytes.Equal(got.Signature, good.Signature) || got.Randomness != good.Randomness) {
			t.Errorf("%q is taken for %+v", sent, got)
		}
	})
}
