package devkit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"triprize.example/draw/fairdraw"
	"triprize/devkit/devstack"
	"triprize/internal/platform/config"
)

// demoReport is what `triprize-dev demo --json` prints.
type demoReport struct {
	CampaignID         uuid.UUID              `json:"campaign_id"`
	Positions          int                    `json:"positions"`
	Buyers             int                    `json:"buyers"`
	Accepted           int                    `json:"accepted"`
	Succeeded          int                    `json:"succeeded"`
	Rejected           int                    `json:"rejected"`
	Sold               int                    `json:"sold"`
	Draws              int                    `json:"draws"`
	Winners            []fairdraw.ProofWinner `json:"winners"`
	DurationMS         int64                  `json:"duration_ms"`
	PurchasesPerSecond float64                `json:"purchases_per_second"`
	LatencyMS          latency                `json:"latency_ms"`
	ColdLatencyMS      latency                `json:"cold_latency_ms"` // of the crowd before, the first that the servers see
	Proof              string                 `json:"proof,omitempty"` // the file of the proof document; empty: nothing was drawn
	OK                 bool                   `json:"ok"`
}

type latency struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

func (l latency) String() string {
	return fmt.Sprintf("p50 %.0f ms, p95 %.0f ms, p99 %.0f ms", l.P50, l.P95, l.P99)
}

func demoCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "demo",
		Short: "Sell out a campaign to concurrent buyers, draw it, and verify the outcome",
		Long: `Start everything in a temporary folder, sell a campaign to concurrent buyers over
HTTP, wait for the draw, and check the database against the promises of Triprize.
The proof of the draw is saved to a file and verified (triprize verify). The exit
status is 0 only if every check passed.

The same crowd buys a campaign of the same shape before: its latency is that of cold
servers, with new connections. All other figures are those of the second campaign,
whose live page everybody can watch at the printed address.

--open opens that page in the browser, gives it three seconds before the crowd buys
and, without --json, keeps the servers running at the end until Enter or Ctrl-C.`,
		Args: cobra.NoArgs,
	}
	form := c.Flags().String("shape", "triangle", "triangle, hall (ten rows of twelve seats) or raffle (10,000 tickets)")
	base := c.Flags().Int("base-length", 20, "layers of the triangle: 20 are 210 positions")
	buyers := c.Flags().Int("buyers", 500, "concurrent buyers; each wants one position, or in the raffle a book of tickets")
	asJSON := c.Flags().Bool("json", false, "print the report as one JSON document")
	watch := c.Flags().Bool("open", false, "open the live page in the browser")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if *base < 3 || *base > 50 {
			return errors.New("--base-length must be 3 to 50")
		}
		offered, err := demoOffer(*form, *base)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("base-length") && *form != "triangle" {
			return errors.New("--base-length is for the triangle")
		}
		if *buyers < 1 || *buyers > 10_000 {
			return errors.New("--buyers must be 1 to 10000")
		}
		listen, err := devstack.FreeAddress()
		if err != nil {
			return err
		}
		out := cmd.ErrOrStderr()
		say(out, "starting private servers and the fleet …")
		d := newDemo(offered, *buyers, out)
		d.environment, err = startEnvironment(cmd.Context(), devstack.Options{}, listen, 2, false, config.Overrides{}, out)
		if err == nil {
			err = d.run(cmd.Context(), *watch)
		}
		if cmd.Context().Err() != nil { // then other errors only follow from the interruption
			err = errInterrupted
		}
		err = errors.Join(err, d.tell(cmd.OutOrStdout(), *asJSON, err == nil))
		if *watch && !*asJSON && err == nil {
			d.awaitEnd(cmd.Context(), cmd.InOrStdin()) // the demo has succeeded: its interruption is no failure now
		}
		if d.environment != nil {
			err = errors.Join(err, d.stop())
		}
		return err
	}
	return c
}

// tell prints the outcome. As JSON it also prints the report of an interrupted
// demo, as far as it is known.
func (d *demo) tell(w io.Writer, asJSON, complete bool) error {
	d.report.OK = complete && len(d.wrong) == 0
	if asJSON {
		if err := json.NewEncoder(w).Encode(d.report); err != nil {
			return err
		}
	} else if complete {
		d.print(w)
	}
	if complete && !d.report.OK {
		return fmt.Errorf("the demo did not keep what Triprize promises:\n%s", d.complaints())
	}
	return nil
}
