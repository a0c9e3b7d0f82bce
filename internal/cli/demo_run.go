package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/audit"
	"triprize/internal/campaign"
	"triprize/internal/draw"
	"triprize/internal/triangle"
)

// demo is one run of the demo.
type demo struct {
	*environment
	progress io.Writer
	base     int
	buyers   int

	report demoReport
	wrong  []string
	owners map[triangle.Position]bool // sold, as the board says
}

var errInterrupted = errors.New("the demo was interrupted")

// purchaseAnswer is what the demo reads of a job.
type purchaseAnswer struct {
	status  int // HTTP
	State   string
	Problem *struct{ Code string }
	took    time.Duration
	err     error
}

func (d *demo) complaints() string { return "  - " + strings.Join(d.wrong, "\n  - ") }

// expect notes a broken promise.
func (d *demo) expect(held bool, format string, args ...any) {
	if !held {
		d.wrong = append(d.wrong, fmt.Sprintf(format, args...))
	}
}

func newDemo(base, buyers int, progress io.Writer) *demo {
	return &demo{progress: progress, base: base, buyers: buyers,
		report: demoReport{Positions: triangle.Count(base), Buyers: buyers, Winners: []draw.Winner{}}}
}

// run fails when it could not be brought to its end; a promise that did not hold
// is noted.
func (d *demo) run(ctx context.Context) error {
	if err := d.open(ctx); err != nil {
		return err
	}
	say(d.progress, "campaign %s is on sale: %d positions, %d buyers", d.report.CampaignID, d.report.Positions, d.buyers)
	d.count(d.sell(ctx))
	if ctx.Err() != nil {
		return errInterrupted
	}
	if d.buyers >= d.report.Positions {
		say(d.progress, "sold out; waiting for the draw …")
		if err := d.awaitDraw(ctx); err != nil {
			return err
		}
	}
	return d.check(ctx)
}

// call sends one request as the operator or the app and decodes its answer.
func (d *demo) call(ctx context.Context, client *http.Client, key, method, path string, header http.Header, body, answer any) (int, error) {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, err
		}
		reader = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, d.url()+path, reader)
	if err != nil {
		return 0, err
	}
	request.Header = header
	request.Header.Set("Authorization", "Bearer "+key)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err != nil {
		return 0, err
	}
	return response.StatusCode, json.Unmarshal(data, answer)
}

// open creates and publishes the campaign.
func (d *demo) open(ctx context.Context) error {
	type prize struct {
		Name  string `json:"name"`
		Count int    `json:"count"`
	}
	type layer struct {
		Layer  int     `json:"layer"`
		Price  int     `json:"price"`
		Prizes []prize `json:"prizes"`
	}
	layers := make([]layer, d.base)
	for i := range layers {
		layers[i] = layer{Layer: i + 1, Price: 100 * (d.base - i), Prizes: []prize{{Name: fmt.Sprintf("Prize of layer %d", i+1), Count: 1}}}
	}
	var made struct{ ID uuid.UUID }
	for _, step := range []struct {
		path string
		body any
		want int
	}{
		{"/v1/campaigns", map[string]any{"name": "Demo", "base_length": d.base, "currency": "JPY", "layers": layers}, http.StatusCreated},
		{"/v1/campaigns/%s/publish", nil, http.StatusOK},
	} {
		path := step.path
		if strings.Contains(path, "%s") {
			path = fmt.Sprintf(path, made.ID)
		}
		status, err := d.call(ctx, http.DefaultClient, d.keys.Operator, http.MethodPost, path, http.Header{"Idempotency-Key": {uuid.NewString()}}, step.body, &made)
		if err != nil {
			return err
		}
		if status != step.want {
			return fmt.Errorf("POST %s answered %d", path, status)
		}
	}
	d.report.CampaignID = made.ID
	return nil
}

// sell lets every buyer ask for one position at the same moment, wait for the
// outcome, and retry with the same key when there is none.
func (d *demo) sell(ctx context.Context) []purchaseAnswer {
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: d.buyers, MaxConnsPerHost: d.buyers}}
	defer client.CloseIdleConnections()
	answers := make([]purchaseAnswer, d.buyers)
	var crowd sync.WaitGroup
	gun := make(chan struct{})
	for i := range answers {
		crowd.Go(func() {
			<-gun
			answers[i] = d.buy(ctx, client, fmt.Sprintf("buyer-%d", i+1))
		})
	}
	start := time.Now()
	close(gun)
	crowd.Wait()
	d.report.DurationMS = time.Since(start).Milliseconds()
	return answers
}

const buyTries = 5

func (d *demo) buy(ctx context.Context, client *http.Client, user string) (answer purchaseAnswer) {
	header := http.Header{"Idempotency-Key": {uuid.NewString()}, "Prefer": {"wait=30"}}
	body := map[string]any{"user_id": user, "selection": map[string]int{"quantity": 1}, "payment": map[string]string{"method": "external", "reference": "demo-" + user}}
	start := time.Now()
	for range buyTries {
		answer = purchaseAnswer{}
		answer.status, answer.err = d.call(ctx, client, d.keys.App, http.MethodPost, "/v1/campaigns/"+d.report.CampaignID.String()+"/purchases", header.Clone(), body, &answer)
		if answer.err == nil && answer.status == http.StatusOK {
			break
		}
	}
	answer.took = time.Since(start)
	return answer
}

// count turns the answers into figures.
func (d *demo) count(answers []purchaseAnswer) {
	var took []time.Duration
	refusals := make(map[string]int)
	for _, a := range answers {
		d.expect(a.err == nil && a.status == http.StatusOK, "a buyer got no final answer: status %d, %v", a.status, a.err)
		if a.err != nil || a.status != http.StatusOK {
			continue
		}
		d.report.Accepted++
		took = append(took, a.took)
		if a.State == "succeeded" {
			d.report.Succeeded++
			continue
		}
		d.report.Rejected++
		if a.Problem != nil {
			refusals[a.Problem.Code]++
		}
	}
	slices.Sort(took)
	d.report.LatencyMS = latency{percentile(took, 50), percentile(took, 95), percentile(took, 99)}
	d.report.PurchasesPerSecond = float64(d.report.Succeeded) / max(time.Duration(d.report.DurationMS)*time.Millisecond, time.Millisecond).Seconds()
	want := min(d.report.Positions, d.buyers)
	d.expect(d.report.Succeeded == want, "%d purchases succeeded, %d should have", d.report.Succeeded, want)
	d.expect(refusals["sold-out"] == d.buyers-want, "%d buyers were told sold-out, %d should have been: %v", refusals["sold-out"], d.buyers-want, refusals)
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

func (d *demo) awaitDraw(interrupt context.Context) error {
	ctx, cancel := context.WithTimeout(interrupt, drawPatience)
	defer cancel()
	for {
		var answer struct {
			State   campaign.State
			Winners []draw.Winner
		}
		status, err := d.call(ctx, http.DefaultClient, d.keys.App, http.MethodGet, "/v1/campaigns/"+d.report.CampaignID.String()+"/draw", http.Header{}, nil, &answer)
		if err != nil && interrupt.Err() == nil {
			return fmt.Errorf("waiting for the draw: %w", err)
		}
		if status == http.StatusOK && answer.State == campaign.Completed {
			d.report.Winners = answer.Winners
			return nil
		}
		select {
		case <-ctx.Done():
			if interrupt.Err() != nil {
				return errInterrupted
			}
			return fmt.Errorf("the campaign was not drawn within %s; it is %s", drawPatience, answer.State)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// check holds the database against the promises.
func (d *demo) check(ctx context.Context) error {
	violations, err := audit.Check(ctx, d.db, 5)
	if err != nil {
		return err
	}
	for _, v := range violations {
		d.expect(false, "%s: %s", v.Invariant, v.Subject)
	}
	err = d.db.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM positions WHERE campaign_id = $1 AND state = 'sold'), (SELECT count(*) FROM draws WHERE campaign_id = $1)`,
		d.report.CampaignID).Scan(&d.report.Sold, &d.report.Draws)
	if err != nil {
		return err
	}
	want := min(d.report.Positions, d.buyers)
	d.expect(d.report.Sold == want, "%d positions are sold, %d should be", d.report.Sold, want)
	draws := 0
	if want == d.report.Positions {
		draws = 1
	}
	d.expect(d.report.Draws == draws, "the campaign was drawn %d times", d.report.Draws)
	d.expect(len(d.report.Winners) == draws*d.base, "there are %d winners for %d prizes", len(d.report.Winners), d.base)
	return d.loadBoard(ctx)
}

func (d *demo) loadBoard(ctx context.Context) error {
	var board struct {
		Positions []struct {
			triangle.Position
			State string
		}
	}
	_, err := d.call(ctx, http.DefaultClient, d.keys.App, http.MethodGet, "/v1/campaigns/"+d.report.CampaignID.String()+"/positions", http.Header{}, nil, &board)
	d.owners = make(map[triangle.Position]bool)
	for _, p := range board.Positions {
		d.owners[p.Position] = p.State == "sold"
	}
	return err
}
