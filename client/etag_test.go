package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"triprize.example/client"
)

func TestWhatHasATagIsReadAgainOnlyWhenItHasChanged(t *testing.T) {
	t.Parallel()
	names, sent := []string{"Summer", "Summer", "Autumn"}, []string(nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get("If-None-Match"))
		name := names[len(sent)-1]
		w.Header().Set("ETag", `W/"`+name+`"`)
		if r.Header.Get("If-None-Match") == `W/"`+name+`"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		say(w, http.StatusOK, client.Campaign{Name: name})
	}))
	defer server.Close()
	c, err := client.New(server.URL, "tp_key", client.WithTimeout(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	var tag string
	first, err := c.GetCampaign(t.Context(), campaign, client.WithETag(&tag))
	if err != nil || first.Name != "Summer" || tag != `W/"Summer"` {
		t.Fatalf("%+v, tag %s, %v", first, tag, err)
	}
	if _, err := c.GetCampaign(t.Context(), campaign, client.WithETag(&tag)); !errors.Is(err, client.ErrNotModified) || tag != `W/"Summer"` {
		t.Errorf("tag %s, %v", tag, err)
	}
	if changed, err := c.GetCampaign(t.Context(), campaign, client.WithETag(&tag)); err != nil || changed.Name != "Autumn" || tag != `W/"Autumn"` {
		t.Errorf("%+v, tag %s, %v", changed, tag, err)
	}
	if want := []string{"", `W/"Summer"`, `W/"Summer"`}; !slices.Equal(sent, want) {
		t.Errorf("sent %q", sent)
	}
	if _, err := c.GetCampaign(t.Context(), campaign, client.WithETag(nil)); err == nil {
		t.Error("a tag without a place")
	}
}

func TestABoardIsBroughtUpToDate(t *testing.T) {
	t.Parallel()
	position := func(layer, column int, state client.PositionState) client.Position {
		return client.Position{Layer: layer, Column: column, State: state}
	}
	const free, held, sold = client.PositionStateAvailable, client.PositionStateHeld, client.PositionStateSold
	var b client.Board
	if !b.Update(client.Board{BoardVersion: 3, Positions: []client.Position{position(1, 1, free), position(2, 1, free), position(2, 2, free)}}) {
		t.Fatal("the whole board is refused")
	}
	if !b.Update(client.Board{BoardVersion: 5, Since: 3, Positions: []client.Position{position(2, 1, held), position(1, 1, sold)}}) {
		t.Error("changes are refused")
	}
	want := []client.Position{position(1, 1, sold), position(2, 1, held), position(2, 2, free)}
	if !slices.Equal(b.Positions, want) || b.BoardVersion != 5 {
		t.Errorf("%+v", b)
	}
	if !b.Update(client.Board{BoardVersion: 4, Since: 3, Positions: []client.Position{position(1, 1, held)}}) || b.Positions[0].State != sold {
		t.Errorf("older changes win: %+v", b)
	}
	if b.Update(client.Board{BoardVersion: 9, Since: 7}) || b.BoardVersion != 5 {
		t.Errorf("a gap is not seen: %+v", b)
	}
}
