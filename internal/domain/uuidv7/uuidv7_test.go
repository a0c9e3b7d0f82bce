package uuidv7

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestIDsSortByTheTimeTheyWereMadeAndTellIt(t *testing.T) {
	before := time.Now().Truncate(time.Millisecond)
	made := make([]uuid.UUID, 1000)
	for i := range made {
		made[i] = New()
	}
	after := time.Now().Add(time.Millisecond) // ids of one moment are counted on, into the next millisecond
	if !slices.IsSortedFunc(made, Compare) {
		t.Error("a later id sorts before an earlier one")
	}
	for _, id := range made {
		if at := MadeAt(id); at.Before(before) || at.After(after) {
			t.Fatalf("%s says %s; it was made between %s and %s", id, at, before, after)
		}
	}
}

func TestAnIDIsAlwaysInTheSamePlaceAndIDsOfOneMomentSpread(t *testing.T) {
	used := make(map[int]int)
	for range 300 {
		id := New()
		place := Spread(id, 3)
		if Spread(id, 3) != place {
			t.Fatalf("%s is in two places", id)
		}
		used[place]++
	}
	if len(used) != 3 {
		t.Errorf("of three places %d are used", len(used))
	}
}
