package command

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"triprize.example/draw/beacon"
	"triprize.example/draw/verify"
)

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
