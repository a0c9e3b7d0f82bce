package drand_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"triprize.example/draw/beacon"
	"triprize/internal/drawing/drand"
	"triprize/internal/platform/config"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
)

func TestRelaysThatAreAwayAreCountedAndTheOthersAsked(t *testing.T) {
	t.Parallel()
	for away, outcome := range map[string]string{
		drandsim.AwayRefuse: "away", drandsim.AwayError: "refused", drandsim.AwayHTML: "unreadable", drandsim.AwayEndless: "unreadable",
	} {
		t.Run(away, func(t *testing.T) {
			t.Parallel()
			n := relays(t, 3)
			set(t, drandsim.Faults{Away: away}, n.Relays()...)
			c := client(t, n.URLs()...)
			got, err := c.Round(t.Context(), n.Chain().Chain, due)
			wantNone(t, got, err)
			for _, url := range n.URLs() {
				if host := strings.TrimPrefix(url, "http://"); !strings.Contains(err.Error(), host) {
					t.Errorf("%q does not name %s", err, host)
				}
			}
			if c.count(outcome) != 3 {
				t.Errorf("%d are counted as %s", c.count(outcome), outcome)
			}
			set(t, drandsim.Faults{}, n.Relays()[1])
			for range 5 {
				got, err = c.Round(t.Context(), n.Chain().Chain, due)
				want(t, n.Chain().Chain, due, got, err)
			}
		})
	}
}

func TestARelayThatHangsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	n := relays(t, 3)
	set(t, drandsim.Faults{Away: drandsim.AwayHang}, n.Relays()[:2]...)
	c := client(t, n.URLs()...) // each may take an hour
	c.SetPatience(time.Millisecond)
	for number := uint64(1); number < 6; number++ {
		got, err := c.Round(t.Context(), n.Chain().Chain, number)
		want(t, n.Chain().Chain, number, got, err)
	}
	got, err := c.Latest(t.Context(), n.Chain().Chain)
	want(t, n.Chain().Chain, due, got, err)
	if c.count("away") != 0 {
		t.Error("a question that was given up is counted as an answer")
	}
}

func TestAQuestionEndsWhenAllRelaysHang(t *testing.T) {
	t.Parallel()
	n := relays(t, 2)
	set(t, drandsim.Faults{Away: drandsim.AwayHang}, n.Relays()...)
	c := clientOf(t, config.Beacon{Relays: strings.Join(n.URLs(), ","), Timeout: 50 * time.Millisecond})
	got, err := c.Round(t.Context(), n.Chain().Chain, due)
	wantNone(t, got, err)
	got, err = c.Latest(t.Context(), n.Chain().Chain)
	wantNone(t, got, err)
	if c.count("away") != 4 {
		t.Errorf("%d are counted as away", c.count("away"))
	}
}

func TestARoundThatIsNotDueIsNotThereYet(t *testing.T) {
	t.Parallel()
	n := relays(t, 3)
	c := client(t, n.URLs()...)
	if _, err := c.Round(t.Context(), n.Chain().Chain, due+1); !errors.Is(err, drand.ErrNotYet) || c.count("not-yet") != 3 {
		t.Errorf("got %v, %d times", err, c.count("not-yet"))
	}
	// One relay that says so is enough to know it, and no reason to believe the others.
	set(t, drandsim.Faults{Away: drandsim.AwayError}, n.Relays()[0])
	set(t, drandsim.Faults{LateRounds: 5}, n.Relays()[1])
	set(t, drandsim.Faults{Forked: true}, n.Relays()[2])
	if got, err := c.Round(t.Context(), n.Chain().Chain, due); !errors.Is(err, drand.ErrNotYet) || got.Signature != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	// A relay that is behind does not keep a round from us that another has.
	set(t, drandsim.Faults{}, n.Relays()[2])
	got, err := c.Round(t.Context(), n.Chain().Chain, due)
	want(t, n.Chain().Chain, due, got, err)
}

func TestRelaysThatAnswer404DoNotHaveTheRound(t *testing.T) {
	t.Parallel()
	n := relays(t, 1)
	c := client(t, serve(t, http.NotFound))
	if _, err := c.Round(t.Context(), n.Chain().Chain, 1); !errors.Is(err, drand.ErrNotYet) {
		t.Error(err)
	}
	if _, err := c.Round(t.Context(), n.Chain().Chain, 0); err == nil || errors.Is(err, drand.ErrNotYet) {
		t.Errorf("round 0: %v", err)
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
	c := client(t, append(n.URLs()[:3], last)...)
	type answer struct {
		round beacon.Round
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		round, err := c.Latest(t.Context(), n.Chain().Chain)
		answered <- answer{round, err}
	}()
	servers.Eventually(t, "those that are behind have answered", func() bool { return c.count("ok") == 2 || len(answered) > 0 })
	close(release)
	got := <-answered
	want(t, n.Chain().Chain, due, got.round, got.err)
	set(t, drandsim.Faults{Away: drandsim.AwayRefuse}, n.Relays()[3])
	round, err := c.Latest(t.Context(), n.Chain().Chain)
	want(t, n.Chain().Chain, due-7, round, err)
}

func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	n := relays(t, 1)
	var followed atomic.Bool
	elsewhere := serve(t, func(w http.ResponseWriter, r *http.Request) { followed.Store(true); n.Relays()[0].ServeHTTP(w, r) })
	c := client(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere+r.URL.Path, http.StatusFound)
	}))
	got, err := c.Round(t.Context(), n.Chain().Chain, due)
	wantNone(t, got, err)
	if followed.Load() || c.count("refused") != 1 {
		t.Error("the redirect was followed")
	}
}

func TestManyWhoWaitForOneRoundShareOneQuestion(t *testing.T) {
	t.Parallel()
	const many = 40
	n := relays(t, 1)
	var asked atomic.Int64
	release := make(chan struct{})
	c := client(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		<-release
		n.Relays()[0].ServeHTTP(w, r)
	}))
	gone, leave := context.WithCancel(t.Context()) // who begins the question and leaves
	left := make(chan error, 1)
	go func() { _, err := c.Round(gone, n.Chain().Chain, due); left <- err }()
	servers.Eventually(t, "the question is asked", func() bool { return asked.Load() == 1 })
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who has left gets %v", err)
	}
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			got, err := c.Round(t.Context(), n.Chain().Chain, due)
			want(t, n.Chain().Chain, due, got, err)
		})
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
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 1); err != nil {
		t.Fatal(err)
	}
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
	c := client(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
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
		all.Go(func() {
			got, err := c.Round(t.Context(), n.Chain().Chain, number)
			want(t, n.Chain().Chain, number, got, err)
		})
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
	c := client(t, n.URLs()...)
	ended := make(chan error, 1)
	go func() { _, err := c.Round(t.Context(), n.Chain().Chain, due); ended <- err }()
	servers.Eventually(t, "a relay is asked", func() bool { return n.Relays()[0].Requests()+n.Relays()[1].Requests() > 0 })
	c.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := c.Latest(t.Context(), n.Chain().Chain); err == nil {
		t.Error("a closed client asks")
	}
}

func TestAClientNeedsARelay(t *testing.T) {
	t.Parallel()
	if _, err := drand.New(config.Beacon{Timeout: time.Second}, nil, servers.Logger(t)); err == nil {
		t.Error("accepted")
	}
}
