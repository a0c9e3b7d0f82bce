package campaign_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// layersOf returns layers with so many positions each, without prizes.
func layersOf(positions ...int) []campaign.Layer {
	list := make([]campaign.Layer, len(positions))
	for i, n := range positions {
		list[i] = campaign.Layer{Layer: i + 1, Positions: n, Price: 100}
	}
	return list
}

func shaped(base int, layers []campaign.Layer) campaign.Draft {
	d := fixture.Draft(3)
	d.BaseLength, d.Layers = base, layers
	return d
}

func TestADraftHasAnyShapeThatIsSaidOnce(t *testing.T) {
	t.Parallel()
	labelled := func(label string) []campaign.Layer {
		l := layersOf(5)
		l[0].Label = label
		return l
	}
	prized := func(counts ...int) []campaign.Layer {
		l := layersOf(5)
		for _, n := range counts {
			l[0].Prizes = append(l[0].Prizes, campaign.PrizeGroup{Name: "A prize", Count: n})
		}
		return l
	}
	for _, c := range []struct {
		name  string
		draft campaign.Draft
		want  string
	}{
		{"one position", shaped(0, layersOf(1)), ""},
		{"a raffle", shaped(0, layersOf(21)), ""},
		{"a raffle of too many", shaped(0, layersOf(22)), "/layers"},
		{"a hall", shaped(0, layersOf(7, 7, 7)), ""},
		{"a hall of too many", shaped(0, layersOf(7, 7, 8)), "/layers"},
		{"a triangle by its layers", shaped(0, layersOf(1, 2, 3)), ""},
		{"a triangle said twice", shaped(3, layersOf(1, 2, 3)), ""},
		{"a triangle and another shape", shaped(3, layersOf(1, 2, 4)), "/layers/2/positions"},
		{"a triangle with one layer said", shaped(3, layersOf(0, 2, 0)), ""},
		{"no triangle, and a layer without positions", shaped(0, layersOf(4, 0, 4)), "/layers/1/positions"},
		{"a layer of fewer than none", shaped(0, layersOf(-1)), "/layers/0/positions"},
		{"more than a table can have", shaped(0, layersOf(shape.MaxPositions+1)), "/layers/0/positions"},
		{"positions that overflow together", shaped(0, layersOf(shape.MaxPositions, shape.MaxPositions)), "/layers"},
		{"no layers", shaped(0, nil), "/layers"},
		{"more layers than there can be", shaped(0, layersOf(make([]int, shape.MaxLayers+1)...)), "/layers"},
		{"a layer with the longest label", shaped(0, labelled(strings.Repeat("列", shape.MaxLabel))), ""},
		{"a label too long", shaped(0, labelled(strings.Repeat("列", shape.MaxLabel+1))), "/layers/0/label"},
		{"a prize for every position", shaped(0, prized(2, 3)), ""},
		{"one prize more", shaped(0, prized(2, 4)), "/layers/0/prizes/1/count"},
	} {
		if got := pointersOf(t, c.draft.Check(bounds)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestAShapeIsKeptAsItWasDrafted(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	hall := layersOf(12, 10)
	hall[0].Label = "Row A"
	for name, c := range map[string]struct {
		draft campaign.Draft
		base  int
		total int
	}{
		"a hall":                   {shaped(0, hall), 0, 22},
		"a raffle":                 {shaped(0, layersOf(10_000)), 0, 10_000},
		"a triangle by its layers": {shaped(0, layersOf(1, 2, 3)), 3, 6},
		"a triangle":               {fixture.Draft(4), 4, 10},
		"two layers like one":      {shaped(0, layersOf(1, 2)), 0, 3},
	} {
		id := create(t, db, c.draft)
		got, err := campaign.Get(t.Context(), db, id)
		if err != nil || got.BaseLength != c.base || got.Counts.Total != c.total {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		form, err := campaign.ShapeOf(t.Context(), db, id)
		if err != nil || !reflect.DeepEqual(form, c.draft.Shape()) {
			t.Errorf("%s: %+v, %v", name, form, err)
		}
		layers, err := campaign.Layers(t.Context(), db, id)
		if err != nil || !reflect.DeepEqual(campaign.Draft{Layers: layers}.Shape(), form) {
			t.Errorf("%s: %+v, %v", name, layers, err)
		}
	}
	if _, err := campaign.ShapeOf(t.Context(), db, uuid.New()); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("of no campaign: %v", err)
	}
}

// The names of a position come from SQL where positions are read, and from package shape
// where they are sold.
func TestAPositionHasOneNameInSQLAndInGo(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	hall := layersOf(12, 3, 10)
	hall[0].Label, hall[2].Label = "Row A", "Box"
	for _, d := range []campaign.Draft{shaped(0, hall), fixture.Draft(5)} {
		id, form := create(t, db, d), d.Shape()
		exec(t, db, `INSERT INTO positions (campaign_id, layer, col, rank, price)
			SELECT campaign_id, layer, c, first_number + c, 100 FROM layers, generate_series(1, positions) c WHERE campaign_id = $1`, id)
		var number int
		var label string
		var at shape.Position
		rows, err := db.Query(t.Context(), `
			SELECT p.layer, p.col, position_number(l.first_number, p.col), position_label(l.label, l.first_number, p.col)
			FROM positions p JOIN layers l USING (campaign_id, layer) WHERE campaign_id = $1 ORDER BY layer, col`, id)
		n := 0
		if err == nil {
			_, err = pgx.ForEachRow(rows, []any{&at.Layer, &at.Column, &number, &label}, func() error {
				if n++; form.Seat(at) != (shape.Seat{Position: at, Number: number, Label: label}) {
					t.Errorf("%v is %d %q in SQL, and %+v in Go", at, number, label, form.Seat(at))
				}
				return nil
			})
		}
		if err != nil || n != form.Count() {
			t.Errorf("%d of %d positions, %v", n, form.Count(), err)
		}
	}
}

func TestAPatchChangesTheShapeAsAWhole(t *testing.T) {
	t.Parallel()
	hall, triangle := shaped(0, layersOf(5, 5)), shaped(3, layersOf(1, 2, 3)) // as they are read back
	plain := []campaign.Layer{{Layer: 1, Price: 100}, {Layer: 2, Price: 100}, {Layer: 3, Price: 100}, {Layer: 4, Price: 100}}
	for _, c := range []struct {
		name  string
		draft campaign.Draft
		patch campaign.Patch
		want  string // the fields at fault
		base  int    // of the shape
		total int
	}{
		{"a triangle into a raffle", triangle, campaign.Patch{Layers: layersOf(20)}, "", 0, 20},
		{"a hall into a triangle", hall, campaign.Patch{BaseLength: pointer(4), Layers: plain}, "", 4, 10},
		{"a longer triangle", triangle, campaign.Patch{BaseLength: pointer(4), Layers: plain}, "", 4, 10},
		{"the layers of a longer triangle, without its base", triangle, campaign.Patch{Layers: plain}, "/layers", 0, 0},
		{"new prices of a triangle", triangle, campaign.Patch{Layers: plain[:3]}, "", 3, 6},
		{"layers without positions for a hall", hall, campaign.Patch{Layers: plain[:3]}, "/layers/0/positions", 0, 0},
		{"a base for a hall", hall, campaign.Patch{BaseLength: pointer(3)}, "/layers", 0, 0},
		{"another base for a triangle", triangle, campaign.Patch{BaseLength: pointer(4)}, "/layers", 0, 0},
		{"a base and layers that differ", hall, campaign.Patch{BaseLength: pointer(3), Layers: layersOf(5, 5, 5)}, "/layers/0/positions", 0, 0},
		{"a name", hall, campaign.Patch{Name: pointer("New")}, "", 0, 10},
	} {
		d := c.draft.Apply(c.patch)
		if got := pointersOf(t, d.Check(bounds)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		} else if c.want == "" && (d.Shape().BaseLength() != c.base || d.Shape().Count() != c.total) {
			t.Errorf("%s: base length %d, %d positions", c.name, d.Shape().BaseLength(), d.Shape().Count())
		}
	}
}

// Shapes with long labels need more memory than others: fewer of them are known.
func TestKnownShapesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	tx, err := servers.DB(t).Begin(t.Context())
	servers.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	servers.Exec(t, tx, `ALTER TABLE layers DROP CONSTRAINT layers_campaign_id_fkey`) // no campaigns are needed
	facts, ids := campaign.NewTermsCache(), make([]uuid.UUID, 60)
	known := func(id uuid.UUID) bool {
		found := map[uuid.UUID]*campaign.Snapshot{id: {ID: id, State: campaign.Active}}
		servers.NoError(t, facts.Fill(t.Context(), tx, found))
		return found[id].Shape.Count() > 0
	}
	for i := range ids {
		ids[i] = uuid.New()
		if _, err := tx.Exec(t.Context(), `
			INSERT INTO layers (campaign_id, layer, price, positions, first_number, label) SELECT $1, n, 1, 1, n, repeat('席', 100) FROM generate_series(1, 1000) n`, ids[i]); err != nil {
			t.Fatal(err)
		}
		if !known(ids[i]) {
			t.Fatal("it has no shape")
		}
	}
	servers.Exec(t, tx, `DELETE FROM layers`)
	bytes := 0
	for _, id := range ids {
		if known(id) {
			bytes += 1000 * len(strings.Repeat("席", 100))
		}
	}
	if bytes < 8<<20 || bytes > 16<<20 {
		t.Errorf("labels of %d bytes are kept", bytes)
	}
}

func TestTheShapeOfADraftIsReadAgainAndThatOfAPublishedCampaignIsKnown(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := create(t, db, shaped(0, layersOf(5, 5)))
	shapes := campaign.NewTermsCache()
	fill := func(of pgx.Tx, state campaign.State) shape.Shape {
		t.Helper()
		found := map[uuid.UUID]*campaign.Snapshot{id: {ID: id, State: state}}
		servers.NoError(t, shapes.Fill(t.Context(), of, found))
		return found[id].Shape
	}
	for _, step := range []struct {
		state  campaign.State
		second int // positions of layer 2 in the table
		want   int
	}{{campaign.Pending, 5, 10}, {campaign.Pending, 6, 11}, {campaign.Active, 7, 12}, {campaign.Active, 1, 12}, {campaign.Completed, 2, 12}} {
		exec(t, db, `UPDATE layers SET positions = $2 WHERE campaign_id = $1 AND layer = 2`, id, step.second)
		tx, err := db.Begin(t.Context())
		servers.NoError(t, err)
		if n := fill(tx, step.state).Count(); n != step.want {
			t.Errorf("%s with %d: %d positions, want %d", step.state, step.second, n, step.want)
		}
		_ = tx.Rollback(t.Context())
	}
	unknown := map[uuid.UUID]*campaign.Snapshot{uuid.New(): {State: campaign.Active}}
	if err := shapes.Fill(t.Context(), db, unknown); err != nil {
		t.Error(err)
	}
	for _, status := range unknown {
		if status.Shape.Count() != 0 {
			t.Errorf("%+v", status)
		}
	}
}
