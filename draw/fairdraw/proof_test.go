package fairdraw

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

func write(t testing.TB, p Proof, lines []SoldLine) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteProof(&b, p, All(lines)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func read(text string) (p Proof, lines []SoldLine, err error) {
	p, err = ReadProof(strings.NewReader(text), func(l SoldLine) error {
		lines = append(lines, l)
		return nil
	})
	return p, lines, err
}

// anyProof has every member with a value that is awkward to spell. Its parts do not fit.
func anyProof(t testing.TB) (Proof, []SoldLine) {
	t.Helper()
	id := uuid.MustParse("0d6f1f3a-9f3b-4c8e-9b1d-2f00c0ffee00")
	rules, err := NewRules(id, Triangle(3), []Prize{{Number: 1, Layer: 2, Name: "a <b> & \u2028 \"ä\" \x01 😀"}}, &Beacon{PeriodS: 3}).Canonical()
	if err != nil {
		t.Fatal(err)
	}
	round, column := uint64(maxInteger), 2
	return Proof{
		Version: Version, CampaignID: id, Rules: rules, Commitment: Hash{1}, Secret: Hash{2}, Root: Hash{3}, Count: 2,
		FrozenAt: At(time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)), Round: &round, FreezeHash: Hash{4},
		Beacon: &ProofBeacon{PublicKey: bytes.Repeat(Bytes{1, 2}, 48), GenesisTime: 1692803367, BeaconID: `,"sold":[`, PeriodS: 3, Round: round,
			GenesisSeed: bytes.Repeat(Bytes{5}, 32), Signature: Bytes{6}, Randomness: Hash{7}},
		Winners: []ProofWinner{
			{Prize: 1, Name: "a <b> & \u2028 \"ä\" \x01 😀", Layer: 2, Column: &column, PurchaseID: &id},
			{Prize: 2, Name: "", Layer: 3, Awarded: new(bool)},
		},
		Trust: TrustBeacon,
	}, []SoldLine{line(0), line(1), {Layer: math.MaxUint32, Column: maxInteger, PurchaseID: id}}
}

func TestAProofIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	full, lines := anyProof(t)
	bare := full
	bare.Round, bare.Beacon, bare.Winners = nil, nil, nil
	for _, p := range []Proof{full, bare} {
		for _, list := range [][]SoldLine{lines, lines[:1], nil} {
			text := write(t, p, list)
			got, gotLines, err := read(text)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if !slices.Equal(gotLines, list) {
				t.Errorf("the list comes back as %v", gotLines)
			}
			if again := write(t, got, gotLines); again != text {
				t.Errorf("written again:\n%s\nfirst:\n%s", again, text)
			}
			if err := isCanonicalObject([]byte(text)); err != nil {
				t.Errorf("the document %v", err)
			}
		}
	}
}

// Every other spelling of the same document is refused, and the error says where.
func TestAProofHasOneSpelling(t *testing.T) {
	t.Parallel()
	p, lines := anyProof(t)
	text := write(t, p, lines)
	winners := strings.TrimSuffix(text[strings.LastIndex(text, `,"winners":`):], "}")
	for name, c := range map[string]struct{ from, to, member, reason string }{
		"a space":                      {`{"beacon":`, `{ "beacon":`, "", "must stand"},
		"an unknown member":            {`"count":2,`, `"count":2,"counts":2,`, "", "must stand"},
		"an unknown member at the end": {`"prize":2}]}`, `"prize":2}],"z":1}`, "", "must stand"},
		"a member twice at the end":    {`"prize":2}]}`, `"prize":2}],"winners":[]}`, "", "must stand"},
		"the last member less":         {winners, ``, "", "must stand"},
		"a hash that is null":          {`"secret":"02` + strings.Repeat("0", 62) + `"`, `"secret":null`, "secret", "canonical form"},
		"minus nothing":                {`"count":2`, `"count":-0`, "count", "canonical form"},
		"a round beyond 2^53":          {`"round":9007199254740991,"rules"`, `"round":9007199254740992,"rules"`, "round", "no integer"},
		"a time of another zone":       {`05.000000Z`, `05.000000+00:00`, "frozen_at", "is no time"},
		"no list of winners":           {winners, `,"winners":null`, "winners", "no list"},
		"a negative prize":             {`"prize":1,"purchase_id"`, `"prize":-1,"purchase_id"`, "winners", "no integer"},
		"a winner half awarded":        {`{"awarded":false,`, `{"awarded":true,`, "winners", "neither"},
		"a winner with nothing":        {`{"awarded":false,`, `{`, "winners", "neither"},
		"a winner with too much":       {`{"awarded":false,`, `{"awarded":false,"col":1,`, "winners", "unknown"},
		"the beacon has one less":      {`"period_s":3,"public_key"`, `"public_key"`, "beacon", "canonical form"},
		"a line in upper case":         {`"holder":"af`, `"holder":"AF`, "sold", "lower case"},
		"a line with a member more":    {`{"column":1,`, `{"a":1,"column":1,`, "sold", "unknown"},
		"a line with a member less":    {`{"column":1,`, `{`, "sold", "canonical form"},
		"a line twice in itself":       {`{"column":1,`, `{"column":1,"column":1,`, "sold", "canonical form"},
		"a line that begins with 0":    {`{"column":1,`, `{"column":01,`, "sold", "cannot be read"},
		"a negative column":            {`{"column":1,`, `{"column":-1,`, "sold", "no integer"},
		"a comma after the last line":  {`}],"trust"`, `},],"trust"`, "sold", ""},
		"a list in place of a line":    {`"sold":[{`, `"sold":[[],{`, "sold", ""},
		"no list of lines":             {`"sold":[`, `"sold":{`, "sold", ""},
		"rules with a space":           {`{"base_length":3`, `{"base_length": 3`, "rules", "canonical form"},
		"rules that are no object":     {`"rules":{`, `"rules":[{`, "rules", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := strings.Replace(text, c.from, c.to, 1)
			if changed == text {
				t.Fatalf("nothing changed: the document has no %q:\n%s", c.from, text)
			}
			_, _, err := read(changed)
			var form *FormError
			if !errors.As(err, &form) {
				t.Fatalf("got %v", err)
			}
			if c.member != "" && form.Member != c.member || !strings.Contains(form.Error(), c.reason) {
				t.Errorf("got %q about %q, want %q about %q", form.Reason, form.Member, c.reason, c.member)
			}
		})
	}
}

func TestADocumentThatIsCutIsRefused(t *testing.T) {
	t.Parallel()
	p, lines := anyProof(t)
	for text, read := range map[string]func(string) error{
		write(t, p, lines):                           func(part string) error { _, _, err := read(part); return err },
		string(text(t, "proofs/list-operator.json")): func(part string) error { _, _, err := readList(part); return err },
	} {
		for n := range len(text) {
			if err := read(text[:n]); !errors.As(err, new(*FormError)) {
				t.Fatalf("the first %d bytes: %v", n, err)
			}
		}
	}
}

func TestWhatStopsADocumentComesBack(t *testing.T) {
	t.Parallel()
	p, lines := anyProof(t)
	lost := errors.New("the database is away")
	var b, list bytes.Buffer
	broken := func(yield func(SoldLine, error) bool) { _ = yield(lines[0], nil) && yield(SoldLine{}, lost) }
	if err := WriteProof(&b, p, broken); !errors.Is(err, lost) {
		t.Errorf("writing: got %v", err)
	}
	if _, _, err := read(b.String()); err == nil {
		t.Error("what was written is taken for a whole document")
	}
	if err := WriteList(&list, List{Count: 1}, broken); !errors.Is(err, lost) {
		t.Errorf("writing a list: got %v", err)
	}
	if _, _, err := readList(list.String()); err == nil {
		t.Error("what was written is taken for a whole list")
	}
	if WriteList(&list, List{Count: -1}, All(nil)) == nil {
		t.Error("a negative count was written")
	}
	if _, err := ReadProof(strings.NewReader(write(t, p, lines)), func(SoldLine) error { return lost }); !errors.Is(err, lost) {
		t.Errorf("reading: got %v", err)
	}
	for name, change := range map[string]func(*Proof){
		"rules that are not canonical": func(p *Proof) { p.Rules = append([]byte{' '}, p.Rules...) },
		"no rules":                     func(p *Proof) { p.Rules = nil },
		"another version":              func(p *Proof) { p.Version = "" },
		"a round beyond 2^53":          func(p *Proof) { n := uint64(1 << 53); p.Round = &n },
	} {
		changed := p
		change(&changed)
		if WriteProof(&b, changed, All(lines)) == nil {
			t.Errorf("%s: was written", name)
		}
	}
	if WriteProof(&b, p, All([]SoldLine{{Layer: -1}})) == nil {
		t.Error("a negative layer was written")
	}
}

// endless reads the same bytes for ever.
type endless struct {
	block []byte
	at    int
}

func (e *endless) Read(into []byte) (int, error) {
	n := copy(into, e.block[e.at:])
	e.at = (e.at + n) % len(e.block)
	return n, nil
}

// A document whose list does not end is refused at its bound, and not read for ever.
func TestADocumentThatDoesNotEndIsRefused(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/proofs/operator.json")
	if err != nil {
		t.Fatal(err)
	}
	begin := bytes.Index(text, []byte(`"sold":[`)) + len(`"sold":[`)
	end := begin + bytes.IndexByte(text[begin:], '}') + 1
	line := append(bytes.Clone(text[begin:end]), ',')
	lines := 0
	_, err = ReadProof(io.MultiReader(bytes.NewReader(text[:begin]), &endless{block: line}), func(SoldLine) error { lines++; return nil })
	if form, ok := errors.AsType[*FormError](err); !ok || lines > MaxDocument/len(line) {
		t.Errorf("after %d lines: %v, %v", lines, form, err)
	}
}
