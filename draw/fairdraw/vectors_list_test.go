package fairdraw

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

func writeList(t testing.TB, l List, lines []SoldLine) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteList(&b, l, All(lines)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func readList(text string) (l List, lines []SoldLine, err error) {
	l, err = ReadList(strings.NewReader(text), func(line SoldLine) error {
		lines = append(lines, line)
		return nil
	})
	return l, lines, err
}

func (d *document) list() List { return List{CampaignID: d.CampaignID, Count: d.Count, Root: d.Root} }

// lists adds the lists of some proofs, and lists of which a check must fail.
func (m *made) lists(t testing.TB) {
	t.Helper()
	for _, name := range []string{"operator", "beacon", "unsold", "unsold with nothing sold"} {
		file := "proofs/" + strings.ReplaceAll(name, " ", "-") + ".json"
		p, lines, err := read(string(m.files[file]))
		if err != nil {
			t.Fatal(err)
		}
		text := writeList(t, List{CampaignID: p.CampaignID, Count: p.Count, Root: p.Root}, lines)
		m.Lists = append(m.Lists, listVector{Name: name, File: m.file(t, "list "+name, []byte(text)), Proof: file})
	}
	d := operatorDraw(t)
	text, root := writeList(t, d.list(), d.lines), d.Root.String()
	for _, c := range []spelling{
		{"newline at the end", `}]}`, "}]}\n"},
		{"space", `"count":6`, `"count": 6`},
		{"a version", `}]}`, `}],"version":"triprize-draw/1"}`},
		{"member less", `"count":6,`, ``},
		{"member twice", `"count":6`, `"count":6,"count":6`},
		{"order of members", `"count":6,"root":"` + root + `"`, `"root":"` + root + `","count":6`},
		{"a line with a nonce", `"layer":1,`, `"layer":1,"nonce":"00",`},
		{"no list", text, `[]`},
	} {
		m.wrongList(t, CheckForm, c.name, string(c.of(t, text)))
	}
	for _, c := range []struct {
		check, name string
		lie         func(d *document) *document
	}{
		{CheckSoldList, "not in order", func(d *document) *document { d.lines[1], d.lines[3] = d.lines[3], d.lines[1]; return d.grow() }},
		{CheckSoldList, "a position twice", func(d *document) *document { d.lines[5].Column = 2; return d.grow() }},
		{CheckCount, "a line more", func(d *document) *document { d.Count = 5; return d }},
		{CheckCount, "a line less", func(d *document) *document { d.lines = d.lines[:5]; return d.grow() }},
		{CheckRoot, "another buyer", func(d *document) *document { d.lines[2].Holder = seed("another", 0); return d }},
		{CheckRoot, "another root", func(d *document) *document { d.Root[0] ^= 1; return d }},
	} {
		d := c.lie(operatorDraw(t))
		m.wrongList(t, c.check, c.name, writeList(t, d.list(), d.lines))
	}
}

func (m *made) wrongList(t testing.TB, check, name, text string) {
	t.Helper()
	file := m.file(t, "list wrong "+check+" "+name, []byte(text))
	m.WrongLists = append(m.WrongLists, wrongListVector{Name: name, File: file, Check: check})
}

func TestEveryListIsThatOfItsProofAndWrongOnesFailAsTheySay(t *testing.T) {
	t.Parallel()
	v := index(t)
	if len(v.Lists) == 0 || len(v.WrongLists) == 0 {
		t.Fatal("there are no lists")
	}
	for _, c := range v.Lists {
		l, lines, err := readList(string(text(t, c.File)))
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		if check, err := l.Check(lines); err != nil {
			t.Errorf("%s: %s: %v", c.Name, check, err)
		}
		if writeList(t, l, lines) != string(text(t, c.File)) {
			t.Errorf("%s is written in another way", c.Name)
		}
		p, sold, err := read(string(text(t, c.Proof)))
		if want := (List{CampaignID: p.CampaignID, Count: p.Count, Root: p.Root}); err != nil || l != want || !slices.Equal(lines, sold) {
			t.Errorf("%s is not the list of %s: %v", c.Name, c.Proof, err)
		}
	}
	for _, c := range v.WrongLists {
		l, lines, err := readList(string(text(t, c.File)))
		got := CheckForm
		if err == nil {
			got, err = l.Check(lines)
		} else if !errors.As(err, new(*FormError)) {
			t.Errorf("%s: %v", c.Name, err)
		}
		if err == nil || got != c.Check {
			t.Errorf("%s, %s: %s fails: %v", c.Check, c.Name, got, err)
		}
	}
}
