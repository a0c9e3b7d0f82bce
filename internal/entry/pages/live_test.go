package pages

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/lifecycle"
	files "triprize/web/pages"
)

func TestNoLanguageLacksAMessage(t *testing.T) {
	t.Parallel()
	p := &pages{}
	if err := p.parse(); err != nil {
		t.Fatal(err)
	}
	needed := []string{"language", "gone", "unavailable", "state_held_or_reserved", "state_lost", "phase_upcoming", "phase_on_sale", "phase_paused", "phase_ended", "phase_drawing", "phase_completed", "phase_cancelled",
		"trust_beacon", "trust_chain", "trust_operator"}
	for _, state := range states {
		needed = append(needed, "state_"+state)
	}
	for _, file := range []string{"campaign.html", "layout.html"} {
		source, err := files.Files.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, used := range regexp.MustCompile(`text "([a-z_]+)"`).FindAllStringSubmatch(string(source), -1) {
			needed = append(needed, used[1])
		}
	}
	slices.Sort(needed)
	needed = slices.Compact(needed)
	for _, language := range languages {
		if all := slices.Sorted(maps.Keys(p.messages[language])); !slices.Equal(all, needed) {
			t.Errorf("%s has the messages %q, the pages need %q", language, all, needed)
		}
		for key, text := range p.messages[language] {
			if parts := strings.Count(text, "%s"); text == "" || parts != strings.Count(p.messages[english][key], "%s") || parts != strings.Count(text, "%") {
				t.Errorf("%s: %s is %q, in English %q", language, key, text, p.messages[english][key])
			}
		}
	}
}

// campaignOf is a campaign with layers of so many positions, of which one is sold and one has won.
func campaignOf(base int, layers ...int) (s Snapshot) {
	if base > 0 {
		s.Campaign.BaseLength = &base
	}
	s.Campaign.State = contract.CampaignStateActive
	for i, n := range layers {
		s.Campaign.Layers = append(s.Campaign.Layers, contract.Layer{Layer: i + 1, Label: new("Row <" + string(rune('A'+i))), Positions: contract.Counts{Total: n, Available: n - 2, Sold: 2}})
		s.Draw.Winners = append(s.Draw.Winners, contract.Winner{Layer: i + 1, Column: new(1)})
		for column := range n {
			s.Add([]string{"sold", "available"}[min(column/2, 1)], column == 0)
		}
	}
	return s
}

func TestAPictureHasASquareForEachPositionOrABarForEachLayer(t *testing.T) {
	t.Parallel()
	hall := campaignOf(0, 10, 8)
	hall.Campaign.Layers[0].Aisles = []int{5}
	many := campaignOf(0, 1000, 1001)
	many.States = nil // it has no squares
	for name, c := range map[string]struct {
		of    Snapshot
		has   []string
		rects map[string]int
	}{
		"triangle": {campaignOf(4, 2, 3, 4), []string{`x="70" y="0"`, `x="60" y="20"`}, map[string]int{"free": 3, "sold": 3, "won": 3}},
		"hall":     {hall, []string{`>Row &lt;A<`, `x="60" y="0"`, `x="100" y="0"`, `x="120" y="0"`, `viewBox="0 0 170 20"`}, map[string]int{"free": 14, "sold": 2, "won": 2}},
		"row":      {campaignOf(0, 50), []string{`viewBox="0 0 500 10"`}, map[string]int{"free": 48, "sold": 1, "won": 1}},
		"raffle":   {campaignOf(0, 500), []string{`viewBox="0 0 310 170"`, `x="300" y="0"`, `x="0" y="10"`}, map[string]int{"free": 498, "sold": 1, "won": 1}},
		"bars":     {many, []string{`viewBox="0 0 400 48"`}, map[string]int{"free": 2, "sold": 2, "won": 2}},
	} {
		picture, legends := pictureOf(c.of)
		for _, text := range c.has {
			if !strings.Contains(string(picture), text) {
				t.Errorf("%s: there is no %s in %.2000s", name, text, picture)
			}
		}
		total := 0
		for _, l := range legends {
			total += l.Count
			if l.State == "sold" && l.Label != "state_lost" {
				t.Errorf("%s: after the draw those who have not won are %s", name, l.Label)
			}
			if n := strings.Count(string(picture), `<rect data-state="`+l.State+`"`); n != c.rects[l.State] {
				t.Errorf("%s: %d are drawn %s, want %d", name, n, l.State, c.rects[l.State])
			}
		}
		if want := len(c.of.States); want > 0 && total != want || want == 0 && total != 2001 {
			t.Errorf("%s: the legend counts %d", name, total)
		}
	}
}

func TestWhatAStateMeansDependsOnTheTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	earlier, later := now.Add(-time.Second), now.Add(time.Second)
	for want, c := range map[string]contract.CampaignSummary{
		"on_sale": {State: "active", SaleStartsAt: &now, SaleEndsAt: &later}, "upcoming": {State: "active", SaleStartsAt: &later},
		"paused": {State: "active", Paused: true, SaleStartsAt: &later}, "ended": {State: "active", Paused: true, SaleEndsAt: &now},
		"drawing": {State: "drawing", SaleEndsAt: &earlier}, "completed": {State: "completed"}, "cancelled": {State: "cancelled"},
	} {
		if got := phaseOf(contract.Campaign{CampaignSummary: c}, now); got != want {
			t.Errorf("%+v is %s, not %s", c, got, want)
		}
	}
}

func TestOnlyAPictureThatCanBeSeenHasSquares(t *testing.T) {
	t.Parallel()
	seats := campaignOf(0, 101).Campaign
	if seats.Layers[0].Aisles = []int{50}; HasSquares(seats) {
		t.Error("a row of 101 seats has squares")
	}
	for label, want := range map[string]string{"Balcony 12": "Balcony 12", "Balcony 123": "Balcony 12…", "バルコニー1階": "バルコニー…"} {
		if got := shortened(label); got != want {
			t.Errorf("%s is shortened to %s", label, got)
		}
	}
	for want, all := range map[bool][][]int{true: {{2000}, {100, 100}, {3}}, false: {{2001}, {101, 3}, slices.Repeat([]int{1}, 101), slices.Repeat([]int{50}, 41)}} {
		for _, layers := range all {
			c := campaignOf(0, layers...).Campaign
			for _, n := range layers {
				c.Positions.Total += n
			}
			if HasSquares(c) != want {
				t.Errorf("%d layers, the first of %d: %t", len(layers), layers[0], !want)
			}
		}
	}
}

// A part that somebody has typed is text, whatever is in it, and of each kind that the page has.
func TestEveryPartOfAMessageIsShown(t *testing.T) {
	t.Parallel()
	p := &pages{}
	if err := p.parse(); err != nil {
		t.Fatal(err)
	}
	s := campaignOf(3, 3, 3)
	s.Campaign.Positions.Sold = 1 // until it is refunded
	s.Campaign.State, s.Campaign.CancelReason, s.Campaign.PurchaseLimit = contract.CampaignStateCancelled, new("<b>Rain</b> 100%"), new(5)
	for _, language := range languages {
		text, err := p.execute(language, "campaign", "live", viewOf(s))
		if err != nil || strings.Contains(string(text), "data-final") || !strings.Contains(string(text), "&lt;b&gt;Rain&lt;/b&gt; 100%") || !strings.Contains(string(text), `<data value="5">5</data>`) || strings.Contains(string(text), "%!") {
			t.Errorf("%s: %v\n%s", language, err, text)
		}
		unsold := s
		unsold.Campaign.Positions.Sold, unsold.Campaign.CancelReason = 0, new(lifecycle.UnsoldReason)
		if text, err := p.execute(language, "campaign", "live", viewOf(unsold)); err != nil || !strings.Contains(string(text), "data-final") || !strings.Contains(string(text), p.messages[language]["reason_unsold"]) || strings.Contains(string(text), lifecycle.UnsoldReason) {
			t.Errorf("%s: %v\n%s", language, err, text)
		}
	}
}

// What is rendered has a bound, whatever a campaign has.
func TestTheLargestCampaignHasAPageOfBoundedSize(t *testing.T) {
	t.Parallel()
	p := &pages{budget: nil}
	if err := p.parse(); err != nil {
		t.Fatal(err)
	}
	s := campaignOf(0, slices.Repeat([]int{500}, 1000)...)
	s.States, s.Draw.State = nil, contract.CampaignStateCompleted
	for i := range s.Campaign.Layers {
		for range 20 {
			s.Campaign.Layers[i].Prizes = append(s.Campaign.Layers[i].Prizes, contract.PrizeGroup{Name: strings.Repeat("&", 200), Count: 1})
			s.Draw.Winners = append(s.Draw.Winners, contract.Winner{Layer: i + 1, Name: strings.Repeat("&", 200), Label: new("Row"), Column: new(1)})
		}
	}
	shown := NewSnapshot(s.Campaign, s.Draw, time.Now())
	if w, err := p.watch(shown, nil); err != nil || w.bytes > 15<<20 || len(viewOf(shown).Campaign.Layers) != 100 {
		t.Errorf("%d bytes, %v", w.bytes, err)
	}
	shown.Campaign.Layers[51].Prizes = nil
	for i, want := range map[int]int{49: 20, 50: 1, 51: 0, 52: 1} { // one says that there are more
		if got := viewOf(shown).Campaign.Layers[i].Prizes; len(got) != want || want == 1 && got[0].Name != "…" {
			t.Errorf("layer %d shows %d groups of prizes, want %d", i+1, len(got), want)
		}
	}
}

// A refresh that shows nothing new renders nothing, and whatever it shows anew is rendered.
func TestWhatHasNotChangedIsNotRenderedAgain(t *testing.T) {
	t.Parallel()
	p := &pages{}
	if err := p.parse(); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	snapshot := func(change func(*Snapshot)) Snapshot {
		s := campaignOf(3, 1, 2, 3)
		s.Campaign.SaleStartsAt, s.Campaign.SaleEndsAt, s.At = new(now.Add(time.Minute)), new(now.Add(time.Hour)), now
		change(&s)
		return s
	}
	live := func(w *watched) *file {
		f, err := w.live["de"]()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first, err := p.watch(snapshot(func(*Snapshot) {}), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Snapshot){"": func(s *Snapshot) { s.At = now.Add(30 * time.Second) }, "the sale begins": func(s *Snapshot) { s.At = now.Add(time.Minute) },
		"a name": func(s *Snapshot) { s.Campaign.Name = "B" }, "a sale": func(s *Snapshot) { s.Campaign.Layers[1].Positions.Sold++ }, "a pause": func(s *Snapshot) { s.Campaign.Paused = true },
		"a position": func(s *Snapshot) { s.States[0] = "held" }, "a freeze": func(s *Snapshot) { s.Draw.Freeze = &contract.Freeze{} }} {
		next, err := p.watch(snapshot(change), first)
		if err != nil || (live(next) == live(first)) != (name == "") {
			t.Errorf("%q: rendered again %t, %v", name, live(next) != live(first), err)
		}
	}
}
