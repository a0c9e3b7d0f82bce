package wallet_test

import (
	"reflect"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

func TestEventsReadAtOnceAreThoseOfTheHistory(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	ids := []uuid.UUID{fixture.Wallet(t, db, "a", 100), fixture.Wallet(t, db, "b", 70)}
	places := []wallet.EventID{{Wallet: uuidv7.New(), Version: 1}, {Wallet: ids[0], Version: 99}}
	want := make(map[wallet.EventID]wallet.Event)
	for _, id := range ids {
		history, err := wallet.History(t.Context(), db, id, wallet.Page{Upward: true, Limit: 100})
		if err != nil || len(history) == 0 {
			t.Fatal(history, err)
		}
		for _, v := range history {
			p := wallet.EventID{Wallet: id, Version: v.Version}
			places, want[p] = append(places, p), v
		}
	}
	got, err := wallet.EventsAt(t.Context(), db, places)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if all, err := wallet.GetAll(t.Context(), db, append(ids, uuidv7.New())); err != nil || len(all) != 2 {
		t.Errorf("got %v, %v", all, err)
	}
}
