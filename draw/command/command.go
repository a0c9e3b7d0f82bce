// Package command is the command that checks the proof of a draw, for tools that have others
// beside it.
package command

import (
	"bufio"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize.example/draw/verify"
)

// undecidedError is an error after which nothing can be said about a proof: a file cannot be read,
// or an argument is wrong. Any other error says that the proof does not hold.
type undecidedError struct{ error }

func undecided(err error) error {
	if err == nil {
		return nil
	}
	return &undecidedError{err}
}

// Status returns the exit status that an error of the command stands for.
func Status(err error) int {
	switch _, unknown := errors.AsType[*undecidedError](err); {
	case err == nil:
		return 0
	case unknown:
		return 2
	}
	return 1
}

// New returns the command under a name. Status has the exit status of its error.
func New(name string) *cobra.Command {
	c := &cobra.Command{
		Use:   name + " PROOF.json | --void DRAW.json --list LIST.json --signature HEX",
		Short: "Verify the proof of a draw, offline; status 1 if it is invalid, 2 if it cannot be read",
		Long: `Verify the proof document of a draw (GET /v1/campaigns/{id}/draw/proof), step by step, from
the document alone: no network, no key, no settings. "-" reads it from standard input. Each
check prints its result; the last lines state what the proof shows and what it does not.
docs/draw.md has the procedure and the list of checks.

A document with a beacon must be of drand's quicknet, or of a chain given with --chain-hash.
--commitment and --freeze-hash compare with the values that you recorded before the sale and
before the draw: only they show that nothing was changed. --void computes the winners of a
voided draw from the signature of its round. --labels prints the labels of the winning
positions, which are not part of the proof.

Status 1 if a check fails; 2 if a file cannot be read, or is an error of the server instead
of a proof.`,
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return undecided(err) })
	var in input
	c.Args = func(c *cobra.Command, args []string) error {
		proofs := 1
		if in.void != "" {
			proofs = 0
		}
		return undecided(cobra.ExactArgs(proofs)(c, args))
	}
	flags, asJSON := c.Flags(), false
	flags.StringVar(&in.purchase, "purchase", "", "file: the proof of a purchase (GET /v1/purchases/{id}/proof); verifies that it took part, and prints what it won")
	flags.StringVar(&in.against, "against", "", "file: another proof document of the campaign, which must be the same")
	flags.Func("chain-hash", "`hash` of a chain to accept in addition to quicknet: 64 hex digits; repeatable", hashInto(func(h fairdraw.Hash) { in.options.Chains = append(in.options.Chains, h) }))
	flags.Func("commitment", "the commitment that you recorded before the sale: the `hash`, 64 hex digits", hashInto(func(h fairdraw.Hash) { in.options.Commitment = &h }))
	flags.Func("freeze-hash", "the `hash` of the freeze record that you recorded before the draw: 64 hex digits", hashInto(func(h fairdraw.Hash) { in.options.FreezeHash = &h }))
	flags.StringVar(&in.void, "void", "", "file instead of PROOF.json: a voided draw (GET /v1/campaigns/{id}/draw)")
	flags.StringVar(&in.list, "list", "", "with --void: file: its frozen list (GET /v1/campaigns/{id}/draw/list)")
	flags.Func("signature", "with --void: the `signature` of its round, 96 hex digits, from any relay of the chain", func(text string) (err error) {
		if in.signature, err = hex.DecodeString(text); err != nil || len(in.signature) != beacon.SignatureSize {
			return fmt.Errorf("it must be %d hex digits", 2*beacon.SignatureSize)
		}
		return nil
	})
	flags.StringVar(&in.labels, "labels", "", "file: the labels of the positions (GET /v1/campaigns/{id}/draw/labels)")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if in.stdin = cmd.InOrStdin(); len(args) == 1 {
			in.proof = args[0]
		}
		for _, name := range []string{"void", "list"} {
			if f := flags.Lookup(name); f.Changed && f.Value.String() == "" {
				return undecided(fmt.Errorf("--%s is empty", name))
			}
		}
		report, err := in.verify()
		if err != nil {
			return undecided(err)
		}
		var called *labels
		if in.labels != "" {
			if called, err = readLabels(in.labels, report.CampaignID); err != nil {
				return undecided(err)
			}
		}
		return show(cmd.OutOrStdout(), report, called, in.void != "", asJSON)
	}
	return c
}

// hashInto returns the function that reads an option with a hash.
func hashInto(set func(fairdraw.Hash)) func(string) error {
	return func(text string) error {
		var hash fairdraw.Hash
		if hash.UnmarshalText([]byte(strings.ToLower(text))) != nil {
			return errors.New("it must be 64 hex digits")
		}
		set(hash)
		return nil
	}
}

// input is what the command is given: names of files, and values.
type input struct {
	stdin                    io.Reader
	proof, purchase, against string
	void, list               string // a draw that was voided, and its list
	signature                []byte // of its round
	labels                   string
	options                  verify.Options
}

// verify verifies a proof document, or computes the draw that was voided.
func (in input) verify() (report verify.Report, err error) {
	switch {
	case in.void == "" && (in.list != "" || in.signature != nil):
		return report, errors.New("--list and --signature belong to --void, which is missing")
	case in.void != "" && (in.list == "" || in.signature == nil):
		return report, errors.New("--void needs --list and --signature, too")
	case in.void == "" && in.proof == "":
		return report, errors.New("the name of the proof is empty; - reads standard input")
	}
	var proof, draw, list io.Reader
	for _, file := range []struct {
		name string
		into *io.Reader
	}{{in.proof, &proof}, {in.purchase, &in.options.Purchase}, {in.against, &in.options.Against}, {in.void, &draw}, {in.list, &list}} {
		if file.name == "" {
			continue
		}
		from := in.stdin
		if file.into != &proof || file.name != "-" {
			opened, err := os.Open(file.name)
			if err != nil {
				return report, err
			}
			defer func() { _ = opened.Close() }() // it was only read
			from = opened
		}
		if *file.into, err = noProblem(from); err != nil {
			return report, err
		}
	}
	if draw != nil {
		return verify.Void(draw, list, in.signature, in.options)
	}
	return verify.Proof(proof, in.options)
}

// noProblem returns what it has read, or an error when that is no document but the refusal of a
// server, saved in its place: a problem says nothing about a draw.
func noProblem(r io.Reader) (io.Reader, error) {
	const most = 64 << 10 // bytes; a problem is shorter
	read := bufio.NewReaderSize(r, most)
	begin, err := read.Peek(most)
	var p struct {
		Status       int
		Code, Detail string
	}
	if errors.Is(err, io.EOF) && json.Unmarshal(begin, &p) == nil && p.Status >= 400 && p.Code != "" {
		return nil, fmt.Errorf("this is not a proof but an error of the server (%d %s: %s). Fetch it again after the campaign is drawn", p.Status, plain(p.Code), plain(p.Detail))
	}
	return read, nil // an error comes again
}

// show prints a report, and returns an error when the proof does not hold.
func show(out io.Writer, r verify.Report, called *labels, void, asJSON bool) error {
	if asJSON {
		if err := json.NewEncoder(out).Encode(r); err != nil {
			return undecided(err)
		}
	} else {
		printReport(out, r, called, void)
	}
	switch {
	case r.OnlyChainUnknown:
		return errors.New("the proof holds only for those who trust its chain: every other check is ok")
	case !r.OK:
		return errors.New("the proof does not hold")
	}
	return nil
}

func printReport(out io.Writer, r verify.Report, called *labels, void bool) {
	for _, c := range r.Checks {
		printLine(out, "%-8s  %-17s  %s", c.Status, c.Name, c.Words)
	}
	printLine(out, "\n%s", r.Headline)
	for _, w := range r.Won {
		printLine(out, "\nThis purchase has won prize %d, %s, with position %s.", w.Prize, plain(w.Name), called.position(w))
	}
	if !r.OK {
		return
	}
	if len(r.Won) == 0 && slices.ContainsFunc(r.Checks, func(c verify.Check) bool { return c.Name == "inclusion" }) {
		printLine(out, "\nThis purchase took part, and has won nothing.")
	}
	if called != nil {
		printLine(out, "\nThe winners, and what the server calls their positions:")
		for _, w := range r.Winners {
			if w.Column != nil {
				printLine(out, "  prize %d, %s: position %s", w.Prize, plain(w.Name), called.position(w))
			}
		}
	}
	printLine(out, "\nWhat this proof shows:")
	for _, line := range r.Shows {
		printLine(out, "  - %s", line)
	}
	printLine(out, "What it does not show:")
	for _, line := range r.Remains {
		printLine(out, "  - %s", line)
	}
	if !void {
		return
	}
	printLine(out, "By these files, which say that the draw has not taken place, would have won with this round:")
	for _, w := range r.Winners {
		if w.Column == nil {
			printLine(out, "  prize %d, %s: nobody", w.Prize, plain(w.Name))
			continue
		}
		printLine(out, "  prize %d, %s: position %d/%d of purchase %s", w.Prize, plain(w.Name), w.Layer, *w.Column, w.PurchaseID)
	}
}

// printLine prints a line for people.
func printLine(w io.Writer, format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// plain is a text of a document as it may stand on a terminal; an empty one is a dash.
func plain(text string) string { return cmp.Or(verify.Shown(text), "-") }

// labels are the labels of a campaign, as a server says them. No proof has them.
type labels struct {
	CampaignID uuid.UUID `json:"campaign_id"`
	Layers     []struct {
		Layer       int     `json:"layer"`
		Positions   int     `json:"positions"`
		FirstNumber int     `json:"first_number"`
		Label       *string `json:"label"`
	} `json:"layers"`
}

// readLabels reads the labels of a campaign from a file.
func readLabels(name string, campaign uuid.UUID) (*labels, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	const most = 8 << 20                // a thousand layers with long labels are 1 MB
	input, err := noProblem(io.LimitReader(file, most))
	if err != nil {
		return nil, err
	}
	l := &labels{}
	if err := json.NewDecoder(input).Decode(l); err != nil {
		return nil, fmt.Errorf("%s has no labels: %w", name, err)
	}
	if l.Layers == nil {
		return nil, fmt.Errorf("%s has no labels: fetch GET /v1/campaigns/{id}/draw/labels", name)
	}
	if l.CampaignID != campaign && campaign != uuid.Nil {
		return nil, fmt.Errorf("%s has the labels of campaign %s, and the proof is of %s", name, l.CampaignID, campaign)
	}
	return l, nil
}

// position returns the position of a winner, with its label if the labels have one.
func (l *labels) position(w fairdraw.ProofWinner) string {
	text := fmt.Sprintf("%d/%d", w.Layer, *w.Column)
	if l == nil {
		return text
	}
	for _, layer := range l.Layers {
		if layer.Layer != w.Layer || *w.Column > layer.Positions {
			continue
		}
		label := fmt.Sprint(layer.FirstNumber + *w.Column - 1)
		if layer.Label != nil && *layer.Label != "" {
			label = fmt.Sprint(plain(*layer.Label), " ", *w.Column)
		}
		return fmt.Sprintf("%s (%s, as the server says, not proven)", text, label)
	}
	return text
}
