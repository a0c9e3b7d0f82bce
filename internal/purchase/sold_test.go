package purchase_test

import (
	"slices"
	"testing"

	"triprize.example/draw/fairdraw"
	"triprize/internal/purchase"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestNoSoldPositionIsLostBetweenTwoPages(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	fixture.SellOut(t, db, id)
	var want []fairdraw.SoldLine
	for line, err := range purchase.SoldLines(t.Context(), db, id) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, line)
	}
	if len(want) != 10 {
		t.Fatal(want)
	}
	for size := 1; size <= 11; size++ { // the pages end within layers and at their ends
		var got []fairdraw.SoldLine
		for line, err := range purchase.SoldLinesBy(t.Context(), db, id, size) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, line)
		}
		if !slices.Equal(got, want) {
			t.Errorf("by pages of %d: %v, want %v", size, got, want)
		}
	}
}
