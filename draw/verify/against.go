package verify

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"io"
	"reflect"
	"slices"
	"strings"

	"triprize.example/draw/fairdraw"
)

// digest hashes what is read through it.
type digest struct {
	io.Reader
	hash hash.Hash
}

func newDigest(r io.Reader) digest {
	h := sha256.New()
	return digest{io.TeeReader(r, h), h}
}

// against compares with another proof document. Documents carry no signature, and
// once the secret is public anybody can write one that holds. So a difference shows only that one
// of them is not the campaign's.
func (r *Report) against(d *document, first digest, from io.Reader, o Options) error {
	if d == nil {
		r.add(fairdraw.CheckAgainst, notMade("it needs the document"))
		return nil
	}
	second := newDigest(from)
	other, report, err := proof(second, o)
	if err != nil {
		return err
	}
	r.add(fairdraw.CheckAgainst, compare(d, other, report, bytes.Equal(first.hash.Sum(nil), second.hash.Sum(nil))))
	return nil
}

func compare(d, other *document, report Report, same bool) outcome {
	switch {
	case same:
		return ok("both are the same, byte for byte")
	case other == nil:
		return failed("the other is no proof document: %s", report.Checks[0].Words)
	case other.CampaignID != d.CampaignID:
		return failed("the other is of campaign %s, and says nothing about this one", other.CampaignID)
	case !report.holds():
		return failed("the other differs in %s, and does not hold by itself (%s)", differences(d, other), strings.Join(report.Failed(), ", "))
	default:
		return failed("the other differs in %s, and both hold by themselves: at most one of them is the campaign's. Neither is signed, and once the secret is public anybody can write one. "+
			"The one whose freeze_hash the operator showed before the draw is the campaign's; if it showed both, it made two", differences(d, other))
	}
}

// differences names the members that differ.
func differences(d, other *document) string {
	var names []string
	one, two := reflect.ValueOf(d.Proof), reflect.ValueOf(other.Proof)
	for i := range one.NumField() {
		if !reflect.DeepEqual(one.Field(i).Interface(), two.Field(i).Interface()) {
			names = append(names, one.Type().Field(i).Tag.Get("json"))
		}
	}
	if !slices.Equal(d.sold, other.sold) {
		names = append(names, "sold")
	}
	return strings.Join(names, ", ")
}
