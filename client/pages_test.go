//go:build go1.25

package client_test

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize.example/client"
)

// A list whose pages a program has to turn itself is turned wrong.
func TestEveryListHasAnIterator(t *testing.T) {
	t.Parallel()
	generated, err := os.ReadFile("api.gen.go")
	if err != nil {
		t.Fatal(err)
	}
	lists := regexp.MustCompile(`(?s)type (\w+)Params struct \{[^}]*?\n\tCursor `).FindAllSubmatch(generated, -1)
	if len(lists) < 6 {
		t.Fatalf("only %d lists are found", len(lists))
	}
	for _, list := range lists {
		if !strings.Contains(string(generated), "page, err := c."+string(list[1])+"(") {
			t.Errorf("%s has no iterator", list[1])
		}
	}
}

func TestPagesAreTurned(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		next := []uuid.UUID{uuid.New(), uuid.New(), {}}
		s.answer = func(n int, w http.ResponseWriter, _ *http.Request) bool {
			say(w, http.StatusOK, map[string]any{"campaigns": []client.CampaignSummary{{Name: strconv.Itoa(2*n - 1)}, {Name: strconv.Itoa(2 * n)}}, "next_cursor": next[n-1]})
			return true
		}
		var names []string
		for got, err := range s.client().Campaigns(t.Context(), client.ListCampaignsParams{State: client.CampaignStateActive}) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, got.Name)
		}
		if !slices.Equal(names, []string{"1", "2", "3", "4", "5", "6"}) {
			t.Error(names)
		}
		for i, r := range s.seen() {
			if i > 0 && r.path != "/v1/campaigns?cursor="+next[i-1].String()+"&state=active" {
				t.Errorf("page %d: %s", i+1, r.path)
			}
		}
	})
}

func TestNoMorePagesAreReadThanAreWanted(t *testing.T) {
	cursor := uuid.NewString()
	for name, c := range map[string]struct {
		from  string // a cursor
		stop  bool   // after the first one
		fails int    // the request that is refused
		want  int    // requests
		err   bool
	}{
		"stopped":                  {stop: true, want: 1},
		"a page that is its next":  {from: cursor, want: 1, err: true},
		"the first one is refused": {fails: 1, want: 1, err: true},
		"the next one is refused":  {fails: 2, want: 2, err: true},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulator) {
				s.answer = func(n int, w http.ResponseWriter, _ *http.Request) bool {
					if n == c.fails {
						refuseWith(w, http.StatusForbidden, client.CodeForbidden, "")
					} else {
						say(w, http.StatusOK, map[string]any{"purchases": []client.Purchase{{UserID: "a"}}, "next_cursor": cursor})
					}
					return true
				}
				var errs []error
				for _, err := range s.client().Purchases(t.Context(), "a", client.ListPurchasesParams{Cursor: c.from}) {
					if err != nil {
						errs = append(errs, err)
					}
					if c.stop || len(s.seen()) > 2 {
						break
					}
				}
				if (len(errs) == 1) != c.err || len(errs) > 1 || len(s.seen()) != c.want {
					t.Errorf("%d requests: %v", len(s.seen()), errs)
				}
			})
		})
	}
}
