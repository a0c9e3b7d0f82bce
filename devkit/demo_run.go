package devkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"triprize.example/client"
	"triprize.example/draw/fairdraw"
	"triprize/internal/domain/shape"
	"triprize/internal/entry/upkeep"
)

// demo is one run of the demo.
type demo struct {
	*environment
	progress io.Writer
	offer
	buyers int
	within time.Duration // all buyers come; 0: at once

	sender *http.Client // with a connection for every buyer
	app    *client.Client
	report demoReport
	wrong  []string
	owners map[shape.Position]bool // whether a position is sold, by the API
}

var errInterrupted = errors.New("the demo was interrupted")

// purchaseAnswer is what a buyer gets.
type purchaseAnswer struct {
	job  client.Job
	took time.Duration // from the request to the final answer
	err  error
}

func (d *demo) complaints() string { return "  - " + strings.Join(d.wrong, "\n  - ") }

// expect records a broken promise.
func (d *demo) expect(kept bool, format string, args ...any) {
	if !kept {
		d.wrong = append(d.wrong, fmt.Sprintf(format, args...))
	}
}

func newDemo(o offer, buyers int, progress io.Writer) *demo {
	return &demo{progress: progress, offer: o, buyers: buyers,
		report: demoReport{Positions: o.form.Count(), Buyers: buyers, Winners: []fairdraw.ProofWinner{}}}
}

// wanted is how many positions the buyers want together.
func (d *demo) wanted() int { return d.buyers * d.each }

// run fails when the demo could not be finished. Broken promises are recorded and
// are no error. With watch, the user's browser shows the sale.
func (d *demo) run(ctx context.Context, watch bool) error {
	d.sender = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: d.buyers, MaxConnsPerHost: d.buyers}}
	defer d.sender.CloseIdleConnections()
	if err := d.warmUp(ctx); err != nil {
		return err
	}
	d.draft.PublicPage = client.PublicPagePage
	if err := d.open(ctx); err != nil {
		return err
	}
	say(d.progress, "campaign %s is on sale: %d positions, %d buyers\nwatch it live: %s", d.report.CampaignID, d.report.Positions, d.buyers, d.page())
	if watch {
		d.within = watched
		say(d.progress, "the buyers come within %s, so that there is something to see", watched)
		if err := d.awaitViewer(ctx); err != nil {
			return err
		}
	}
	if err := d.sale(ctx); err != nil {
		return err
	}
	if err := d.check(ctx); err != nil {
		return err
	}
	return d.verify(ctx)
}

// warmUp lets the crowd buy another campaign first. It pays for what the next crowd finds: connections,
// prepared statements, caches.
func (d *demo) warmUp(ctx context.Context) error {
	say(d.progress, "warming up: %d buyers buy another campaign …", d.buyers)
	first := newDemo(d.offer, d.buyers, io.Discard)
	first.environment, first.sender = d.environment, d.sender
	first.draft.Name += " (warm-up)"
	err := first.open(ctx)
	if err == nil {
		err = first.sale(ctx)
	}
	d.report.ColdLatencyMS = first.report.LatencyMS
	for _, wrong := range first.wrong {
		d.expect(false, "the warm-up: %s", wrong)
	}
	return err
}

// sale sells the open campaign to the crowd, waits for the draw, and compares both with what the crowd wanted.
func (d *demo) sale(ctx context.Context) error {
	d.count(d.sell(ctx))
	if ctx.Err() != nil {
		return errInterrupted
	}
	if d.wanted() >= d.report.Positions {
		say(d.progress, "sold out; waiting for the draw …")
		if err := d.awaitDraw(ctx); err != nil {
			return err
		}
	}
	return d.checkSale(ctx)
}

// open creates and publishes the campaign.
func (d *demo) open(ctx context.Context) error {
	operator, err := client.New(d.url(), d.keys.Operator, client.WithHTTPClient(d.sender))
	if err != nil {
		return err
	}
	if d.app, err = client.New(d.url(), d.keys.App, client.WithHTTPClient(d.sender)); err != nil {
		return err
	}
	made, err := operator.CreateCampaign(ctx, d.draft)
	if err != nil {
		return err
	}
	d.report.CampaignID = made.ID
	_, err = operator.PublishCampaign(ctx, made.ID)
	return err
}

// sell lets all buyers request what each wants at the same moment, or within a time, and waits for
// the outcomes.
func (d *demo) sell(ctx context.Context) []purchaseAnswer {
	answers := make([]purchaseAnswer, d.buyers)
	var crowd sync.WaitGroup
	gun := make(chan struct{})
	for i := range answers {
		crowd.Go(func() {
			<-gun
			select {
			case <-time.After(d.within * time.Duration(i) / time.Duration(d.buyers)):
			case <-ctx.Done():
			}
			answers[i] = d.buy(ctx, fmt.Sprintf("buyer-%d", i+1))
		})
	}
	start := time.Now()
	close(gun)
	crowd.Wait()
	d.report.DurationMS = time.Since(start).Milliseconds()
	return answers
}

func (d *demo) buy(ctx context.Context, user string) (answer purchaseAnswer) {
	start := time.Now()
	answer.job, answer.err = d.app.Buy(ctx, d.report.CampaignID, client.PurchaseRequest{UserID: user, Selection: client.Selection{Quantity: d.each},
		Payment: client.PaymentDraft{Method: client.PaymentDraftMethodExternal, Reference: "demo-" + user}})
	answer.took = time.Since(start)
	return answer
}

// count turns the answers into figures.
func (d *demo) count(answers []purchaseAnswer) {
	var took []time.Duration
	refusals := make(map[string]int)
	for _, a := range answers {
		refused, isRefused := a.refusal()
		isFinal := isRefused || a.err == nil && a.job.Final()
		d.expect(isFinal, "a buyer got no final answer: %v", a.err)
		if !isFinal {
			continue
		}
		d.report.Accepted++
		took = append(took, a.took)
		if !isRefused {
			d.report.Succeeded++
			continue
		}
		d.report.Rejected++
		refusals[refused.Code]++
	}
	slices.Sort(took)
	d.report.LatencyMS = latency{percentile(took, 50), percentile(took, 95), percentile(took, 99)}
	d.report.PurchasesPerSecond = float64(d.report.Succeeded) / max(time.Duration(d.report.DurationMS)*time.Millisecond, time.Millisecond).Seconds()
	want := min(d.report.Positions/d.each, d.buyers)
	d.expect(d.report.Succeeded == want, "%d purchases succeeded, %d should have", d.report.Succeeded, want)
	d.expect(refusals[client.CodeSoldOut] == d.buyers-want, "%d buyers were told sold-out, %d should have been: %v", refusals[client.CodeSoldOut], d.buyers-want, refusals)
}

// refusal is why the job was refused, or the request, when it came too late for a job.
func (a purchaseAnswer) refusal() (refused *client.Error, isRefused bool) {
	if refused, isRefused = errors.AsType[*client.Error](a.err); isRefused {
		return refused, refused.Status == http.StatusConflict
	}
	return errors.AsType[*client.Error](a.job.Err())
}

// percentile returns the p-th percentile of sorted durations, in milliseconds.
func percentile(sorted []time.Duration, p int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := min(len(sorted)-1, len(sorted)*p/100)
	return float64(sorted[i].Microseconds()) / 1000
}

const drawPatience = 30 * time.Second

// awaitDraw follows the campaign until it is drawn.
func (d *demo) awaitDraw(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drawPatience)
	defer cancel()
	var now client.CampaignEvent
	for event, err := range d.app.Follow(ctx, d.report.CampaignID) {
		if err != nil {
			return fmt.Errorf("waiting for the draw; the campaign is %s: %w", now.State, err)
		}
		now = event
	}
	if now.State != client.CampaignStateCompleted {
		return fmt.Errorf("the campaign was not drawn: it is %s", now.State)
	}
	drawn, err := d.app.GetDraw(ctx, d.report.CampaignID)
	if err != nil {
		return fmt.Errorf("reading the draw: %w", err)
	}
	for _, w := range drawn.Winners {
		winner := fairdraw.ProofWinner{Prize: w.Prize, Layer: w.Layer, Name: w.Name}
		if w.Column != 0 {
			winner.Column, winner.PurchaseID = &w.Column, &w.PurchaseID
		}
		d.report.Winners = append(d.report.Winners, winner)
	}
	return nil
}

// check compares the database with what Triprize promises, for both campaigns.
func (d *demo) check(ctx context.Context) error {
	violations, err := upkeep.Check(ctx, d.db, 5)
	if err != nil {
		return err
	}
	for _, v := range violations {
		d.expect(false, "%s: %s", v.Invariant, v.Subject)
	}
	return d.loadBoard(ctx)
}

// checkSale expects that the campaign is sold and drawn as the crowd wanted.
func (d *demo) checkSale(ctx context.Context) error {
	err := d.db.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM positions WHERE campaign_id = $1 AND state = 'sold'), (SELECT count(*) FROM draws WHERE campaign_id = $1)`,
		d.report.CampaignID).Scan(&d.report.Sold, &d.report.Draws)
	if err != nil {
		return err
	}
	want := min(d.report.Positions, d.wanted())
	d.expect(d.report.Sold == want, "%d positions are sold, %d should be", d.report.Sold, want)
	draws := 0
	if want == d.report.Positions {
		draws = 1
	}
	d.expect(d.report.Draws == draws, "the campaign was drawn %d times", d.report.Draws)
	d.expect(len(d.report.Winners) == draws*d.prizes, "there are %d winners for %d prizes", len(d.report.Winners), d.prizes)
	return nil
}

func (d *demo) loadBoard(ctx context.Context) error {
	board, err := d.app.ListPositions(ctx, d.report.CampaignID, client.ListPositionsParams{})
	d.owners = make(map[shape.Position]bool)
	for _, p := range board.Positions {
		d.owners[shape.Position{Layer: p.Layer, Column: p.Column}] = p.State == client.PositionStateSold
	}
	return err
}
