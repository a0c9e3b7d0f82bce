package devkit

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"triprize.example/draw/verify"
)

// proofPatience bounds the transfer of the proof document.
const proofPatience = 30 * time.Second

// verify saves the proof of the draw, and verifies it as a stranger would: with the file
// alone. The file outlives the demo.
func (d *demo) verify(ctx context.Context) error {
	if d.report.Draws == 0 {
		return nil
	}
	file := filepath.Join(os.TempDir(), "triprize-demo-"+d.report.CampaignID.String()+".proof.json")
	if err := d.saveProof(ctx, file); err != nil {
		return fmt.Errorf("saving the proof of the draw: %w", err)
	}
	d.report.Proof = file
	proof, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = proof.Close() }() // it was only read
	report, err := verify.Proof(proof, verify.Options{})
	if err != nil {
		return err
	}
	for _, c := range report.Checks {
		d.expect(c.Status == verify.OK, "the proof of the draw, check %s: %s", c.Name, c.Words)
	}
	d.expect(strings.EqualFold(report.CampaignID.String(), d.report.CampaignID.String()), "the proof is of campaign %s", report.CampaignID)
	return nil
}

// saveProof fetches the proof document, without a key: it is for everybody.
func (d *demo) saveProof(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, proofPatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url()+"/v1/campaigns/"+d.report.CampaignID.String()+"/draw/proof", nil)
	if err != nil {
		return err
	}
	response, err := d.sender.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the api answers %s", response.Status)
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, response.Body); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
