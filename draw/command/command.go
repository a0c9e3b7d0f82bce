// Package command is the command that checks the proof of a draw, for tools that have others
// beside it.
package command

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize.example/draw/verify"
)

// Undecided is an error after which nothing can be said about a proof: a file cannot be read,
// or an argument is wrong. Any other error says that the proof does not hold.
type Undecided struct{ error }

// Unwrap returns the error.
func (e *Undecided) Unwrap() error { return e.error }

func undecided(err error) error {
	if err == nil {
		return nil
	}
	return &Undecided{err}
}

// Status returns the exit status that an error of the command stands for.
func Status(err error) int {
	switch _, unknown := errors.AsType[*Undecided](err); {
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
		Short: "Check the proof of a draw, offline; status 1 when it does not hold, 2 when it cannot be read",
		Long: `Check the proof document of a draw (GET /v1/campaigns/{id}/draw/proof), step by step,
with nothing but the document: no network, no key, no settings. "-" reads it from
standard input. Each check says what it found, and the last lines what the proof shows
and what it does not. docs/draw.md has the procedure and the list of the checks.

A document with a beacon must be of drand's quicknet, or of a chain that you name with
--chain-hash. --commitment and --freeze-hash compare with what you noted before the sale and
before the draw: nothing else shows that nothing changed. --void computes the winners that a
voided draw would have had, from the signature of its round.
--labels names the winning positions as people do; the labels are the server's words, and no
part of the proof. Status 1 when a check fails, 2 when a file cannot be read, or is no proof
but a refusal of the server.`,
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return undecided(err) })
	var in input
	c.Args = func(c *cobra.Command, args []string) error {
		return undecided(cobra.ExactArgs(1-in.void.files())(c, args))
	}
	c.Flags().StringVar(&in.purchase, "purchase", "", "file: the proof of a purchase (GET /v1/purchases/{id}/proof); checks that it took part, and tells what it won")
	c.Flags().StringVar(&in.against, "against", "", "file: another proof document of the campaign, which must be the same")
	c.Flags().StringArrayVar(&in.chains, "chain-hash", nil, "hash of a chain to accept besides quicknet's: 64 hex digits; may be repeated")
	c.Flags().StringVar(&in.commitment, "commitment", "", "the commitment that you noted before the sale: 64 hex digits")
	c.Flags().StringVar(&in.freezeHash, "freeze-hash", "", "the hash of the freeze record that you noted before the draw: 64 hex digits")
	in.void.flags(c)
	labelled := c.Flags().String("labels", "", "file: what people call the positions (GET /v1/campaigns/{id}/draw/labels)")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if in.stdin = cmd.InOrStdin(); len(args) == 1 {
			in.proof = args[0]
		}
		for _, name := range []string{"commitment", "freeze-hash", "void", "list", "signature"} {
			if f := c.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
				return undecided(fmt.Errorf("--%s is empty", name))
			}
		}
		report, err := in.verify()
		if err != nil {
			return undecided(err)
		}
		var called *labels
		if *labelled != "" {
			if called, err = readLabels(*labelled, report.CampaignID); err != nil {
				return undecided(err)
			}
		}
		return show(cmd.OutOrStdout(), report, called, in.void.file != "", *asJSON)
	}
	return c
}

// input is what the command is given: names of files, and hashes as text.
type input struct {
	stdin                    io.Reader
	proof, purchase, against string
	chains                   []string
	commitment, freezeHash   string
	void                     voidInput
}

// verify verifies a proof document, with a proof of purchase and another document if they are named.
func (in input) verify() (report verify.Report, err error) {
	o, err := in.options()
	if err != nil {
		return report, err
	}
	if err := in.void.check(); err != nil {
		return report, err
	}
	document, draw, list := in.stdin, io.Reader(nil), io.Reader(nil)
	if in.proof == "-" {
		in.proof = ""
	}
	for _, input := range []struct {
		name string
		into *io.Reader
	}{{in.proof, &document}, {in.purchase, &o.Purchase}, {in.against, &o.Against}, {in.void.file, &draw}, {in.void.list, &list}} {
		if input.name == "" {
			continue
		}
		file, err := os.Open(input.name)
		if err != nil {
			return report, err
		}
		defer func() { _ = file.Close() }() // it was only read
		*input.into = file
	}
	for _, input := range []*io.Reader{&document, &o.Purchase, &o.Against, &draw, &list} {
		if *input == nil || input == &document && draw != nil {
			continue
		}
		if *input, err = noProblem(*input); err != nil {
			return report, err
		}
	}
	if draw != nil {
		return in.void.verify(draw, list, o)
	}
	return verify.Proof(document, o)
}

// options returns what the hashes say.
func (in input) options() (o verify.Options, err error) {
	if o.Chains, err = hashesOf("--chain-hash", in.chains); err != nil {
		return o, err
	}
	for _, noted := range []struct {
		name, text string
		into       **fairdraw.Hash
	}{{"--commitment", in.commitment, &o.Commitment}, {"--freeze-hash", in.freezeHash, &o.FreezeHash}} {
		if noted.text == "" {
			continue
		}
		hashes, err := hashesOf(noted.name, []string{noted.text})
		if err != nil {
			return o, err
		}
		*noted.into = &hashes[0]
	}
	return o, nil
}

// hashesOf reads the values of an option.
func hashesOf(option string, texts []string) (hashes []fairdraw.Hash, err error) {
	for _, text := range texts {
		var hash fairdraw.Hash
		if err := hash.UnmarshalText([]byte(strings.ToLower(text))); err != nil {
			return nil, fmt.Errorf("%s %q: it must be 64 hex digits", option, text)
		}
		hashes = append(hashes, hash)
	}
	return hashes, nil
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
		return nil, fmt.Errorf("this is no proof: the server refused to give one (%d %s: %s). Fetch it again once the campaign is drawn", p.Status, plain(p.Code), plain(p.Detail))
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
		printReport(out, r, called)
		if void {
			printWouldHaveWon(out, r)
		}
	}
	switch {
	case r.OnlyChainUnknown:
		return errors.New("the proof holds only for those who trust its chain: every other check is ok")
	case !r.OK:
		return errors.New("the proof does not hold")
	}
	return nil
}

func printReport(out io.Writer, r verify.Report, called *labels) {
	for _, c := range r.Checks {
		say(out, "%-8s  %-17s  %s", c.Status, c.Name, c.Words)
	}
	say(out, "\n%s", r.Headline)
	for _, w := range r.Won {
		say(out, "\nThis purchase has won prize %d, %s, with position %s.", w.Prize, plain(w.Name), called.place(w))
	}
	if !r.OK {
		return
	}
	if len(r.Won) == 0 && slices.ContainsFunc(r.Checks, func(c verify.Check) bool { return c.Name == fairdraw.CheckInclusionPath }) {
		say(out, "\nThis purchase took part, and has won nothing.")
	}
	if called != nil {
		say(out, "\nThe winners, and what the server calls their positions:")
		for _, w := range r.Winners {
			if w.Column != nil {
				say(out, "  prize %d, %s: position %s", w.Prize, plain(w.Name), called.place(w))
			}
		}
	}
	say(out, "\nWhat this proof shows:")
	for _, line := range r.Shows {
		say(out, "  - %s", line)
	}
	say(out, "What it does not show:")
	for _, line := range r.Remains {
		say(out, "  - %s", line)
	}
}

// say writes a line for people.
func say(w io.Writer, format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// plain is a text of a document without what moves the cursor; an empty one is a dash.
func plain(text string) string {
	if text == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// voidInput is what the command is given of a draw that was voided; empty without --void.
type voidInput struct {
	file, list string // names of files
	signature  string // in hex
}

func (in *voidInput) flags(c *cobra.Command) {
	c.Flags().StringVar(&in.file, "void", "", "file in place of PROOF.json: a draw that was voided (GET /v1/campaigns/{id}/draw)")
	c.Flags().StringVar(&in.list, "list", "", "with --void: file: its frozen list (GET /v1/campaigns/{id}/draw/list)")
	c.Flags().StringVar(&in.signature, "signature", "", "with --void: the signature of its round, 96 hex digits, from any relay of the chain")
}

// files counts what stands in place of the proof document.
func (in *voidInput) files() int {
	if in.file == "" {
		return 0
	}
	return 1
}

// check demands all three, or none.
func (in *voidInput) check() error {
	switch {
	case in.file == "" && in.list == "" && in.signature == "":
		return nil
	case in.file == "":
		return errors.New("--list and --signature belong to --void, which is missing")
	case in.list == "" || in.signature == "":
		return errors.New("--void needs --list and --signature, too")
	}
	return nil
}

func (in *voidInput) verify(draw, list io.Reader, o verify.Options) (verify.Report, error) {
	signature, err := hex.DecodeString(in.signature)
	if err != nil || len(signature) != beacon.SignatureSize {
		return verify.Report{}, fmt.Errorf("--signature %q: it must be %d hex digits", in.signature, 2*beacon.SignatureSize)
	}
	return verify.Void(draw, list, signature, o)
}

// printWouldHaveWon prints the winners of a draw that was voided.
func printWouldHaveWon(out io.Writer, r verify.Report) {
	if !r.OK {
		return
	}
	say(out, "By these files, which say that the draw has not taken place, would have won with this round:")
	for _, w := range r.Winners {
		if w.Column == nil {
			say(out, "  prize %d, %s: nobody", w.Prize, plain(w.Name))
			continue
		}
		say(out, "  prize %d, %s: position %d/%d of purchase %s", w.Prize, plain(w.Name), w.Layer, *w.Column, w.PurchaseID)
	}
}
