package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize.example/draw/fairdraw"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
)

// drawnCampaign sells a campaign of six positions and waits for its draw. It returns the
// purchase of the first three.
func drawnCampaign(s *fleet.System) (path string, purchase uuid.UUID) {
	s.T.Helper()
	id := s.Campaign(3)
	first := s.Buy(fleet.Order{Campaign: id, User: "mina", Quantity: 3, Wait: true})
	s.Buy(fleet.Order{Campaign: id, User: "otto", Quantity: 3, Wait: true})
	s.AwaitDrawn(id)
	return "/v1/campaigns/" + id.String() + "/draw", first.Result.PurchaseID
}

// headOf is the head of an answer.
type headOf struct {
	StatusCode int
	Header     http.Header
}

// plain sends a request as it is: Go's own transport asks for gzip, and unpacks it. The
// error is also one of a body that breaks off.
func plain(t *testing.T, method, url string, header map[string]string) (head headOf, body []byte, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return head, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(response.Body)
	return headOf{response.StatusCode, response.Header}, body, err
}

func TestAnybodyReadsAProofAndItIsKeptForEver(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, purchase := drawnCampaign(s)
	shown := s.Do(0, "", http.MethodGet, path, nil, nil)
	if shown.Status != http.StatusOK || !fleet.Contains(shown.Body, `"state":"completed"`) || !fleet.Contains(shown.Body, `"freeze":{"hash":"`) {
		t.Errorf("the draw without a key: %v %s", shown, shown.Body)
	}
	url := s.URLs[0] + path + "/proof"
	first, body, err := plain(t, http.MethodGet, url, nil)
	if err != nil || first.StatusCode != http.StatusOK || first.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" ||
		first.Header.Get("Content-Type") != "application/json" || first.Header.Get("Vary") != "Accept-Encoding" {
		t.Fatalf("%v, %v", first, err)
	}
	var tree fairdraw.Tree
	p, err := fairdraw.ReadProof(bytes.NewReader(body), tree.Append)
	if err != nil || tree.Root() != p.Root || tree.Count() != 6 || !fleet.Contains(shown.Body, p.FreezeHash.String()) || bytes.Contains(body, []byte("mina")) {
		t.Errorf("%s: %v", body, err)
	}
	tag := first.Header.Get("ETag")
	if strings.HasPrefix(tag, "W/") || len(tag) != 34 {
		t.Errorf("the tag %s is not a strong one", tag)
	}
	if again, same, err := plain(t, http.MethodGet, url, map[string]string{"Authorization": "Bearer " + s.App}); err != nil || !bytes.Equal(same, body) || again.Header.Get("ETag") != tag {
		t.Errorf("read with a key it is another: %v", err)
	}
	zipped, packed, err := plain(t, http.MethodGet, url, map[string]string{"Accept-Encoding": "gzip"})
	if err != nil || zipped.Header.Get("Content-Encoding") != "gzip" || zipped.Header.Get("ETag") != "W/"+tag {
		t.Fatalf("with gzip: %v, %v", zipped, err)
	}
	if archive, err := gzip.NewReader(bytes.NewReader(packed)); err != nil {
		t.Error(err)
	} else if unpacked, err := io.ReadAll(archive); err != nil || !bytes.Equal(unpacked, body) {
		t.Errorf("unpacked it is another: %v", err)
	}
	for _, known := range []string{tag, "W/" + tag, `"x", ` + tag} {
		if a, rest, err := plain(t, http.MethodGet, url, map[string]string{"If-None-Match": known}); err != nil || a.StatusCode != http.StatusNotModified || len(rest) > 0 || a.Header.Get("ETag") != tag {
			t.Errorf("If-None-Match %s: %v, %v", known, a, err)
		}
	}
	if a, rest, err := plain(t, http.MethodHead, url, nil); err != nil || a.StatusCode != http.StatusOK || len(rest) > 0 || a.Header.Get("ETag") != tag {
		t.Errorf("HEAD: %v, %v", a, err)
	}
	list, lines, err := plain(t, http.MethodGet, s.URLs[0]+path+"/list", nil)
	if err != nil || list.StatusCode != http.StatusOK || list.Header.Get("Cache-Control") != first.Header.Get("Cache-Control") || len(list.Header.Get("ETag")) != 34 {
		t.Fatalf("the list: %v, %v", list, err)
	}
	var leaves fairdraw.Tree
	if l, err := fairdraw.ReadList(bytes.NewReader(lines), leaves.Append); err != nil || l.Root != p.Root || leaves.Root() != p.Root || l.Count != 6 {
		t.Errorf("%s: %v", lines, err)
	}
	if a, _, err := plain(t, http.MethodGet, s.URLs[0]+path+"/list", map[string]string{"If-None-Match": list.Header.Get("ETag")}); err != nil || a.StatusCode != http.StatusNotModified {
		t.Errorf("the list again: %v, %v", a, err)
	}
	own := s.Do(0, s.App, http.MethodGet, "/v1/purchases/"+purchase.String()+"/proof", nil, nil)
	mine, err := fairdraw.ReadPurchaseProof(bytes.NewReader(own.Body))
	if err != nil || len(mine.Leaves) != 3 || mine.Root != p.Root || mine.CheckPaths() != nil || !strings.HasPrefix(own.Header.Get("Cache-Control"), "private") {
		t.Errorf("the purchase: %v %s, %v", own, own.Body, err)
	}
}

func TestBeforeTheDrawThereIsNoProof(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	id := s.Campaign(3)
	path := "/v1/campaigns/" + id.String() + "/draw"
	if a := s.Do(0, "", http.MethodGet, path, nil, nil); a.Status != http.StatusOK || !fleet.Contains(a.Body, `"freeze":null`) {
		t.Errorf("a published campaign: %v", a)
	}
	for _, end := range []string{"/proof", "/list"} {
		refused(t, end, s.Do(0, "", http.MethodGet, path+end, nil, nil), 409, "state-conflict")
	}
	own := "/v1/purchases/" + s.Buy(fleet.Order{Campaign: id, User: "mina", Wait: true}).Result.PurchaseID.String() + "/proof"
	for credential, want := range map[string]int{fleet.TokenFor(t, "otto", ""): 404, fleet.TokenFor(t, "mina", ""): 409, s.App: 409} {
		if a := s.Do(0, credential, http.MethodGet, own, nil, nil); a.Status != want {
			t.Errorf("the proof of a purchase: %v, want %d", a, want)
		}
	}
}

func TestAFalseListIsCutOffAndNotServed(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy).With()
	path, _ := drawnCampaign(s)
	id := uuid.MustParse(strings.Split(path, "/")[3])
	fixture.TamperList(t, s.DB, id)
	for _, end := range []string{"/proof", "/list"} {
		for _, encoding := range []string{"identity", "gzip"} {
			if a, body, err := plain(t, http.MethodGet, s.URLs[0]+path+end, map[string]string{"Accept-Encoding": encoding}); err == nil {
				t.Errorf("%s, %s: a whole answer: %v %s", end, encoding, a, body)
			}
		}
	}
	s.AwaitMetric(0, `triprize_proofs_total{outcome="false-list"}`, 4)
	fixture.TamperList(t, s.DB, id) // for the audit at the end
}

func TestAnybodyReadsWhatThePositionsAreCalled(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	body := fleet.RawJSON(`{"name":"Hall","currency":"JPY","layers":[{"layer":1,"positions":12,"label":"Row A","price":1200,"prizes":[]},{"layer":2,"positions":3,"price":800,"prizes":[]}]}`)
	id := view(s, s.Post("/v1/campaigns", body), http.StatusCreated).ID.String()
	path := "/v1/campaigns/" + id + "/draw/labels"
	if a := s.Do(0, s.Operator, http.MethodGet, path, nil, nil); a.Status != http.StatusNotFound { // they may change
		t.Errorf("of a draft: %v", a)
	}
	if a := s.Post("/v1/campaigns/"+id+"/publish", nil); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	a := s.Do(0, "", http.MethodGet, path, nil, nil)
	expected := `{"campaign_id":"` + id + `","layers":[{"layer":1,"positions":12,"first_number":1,"label":"Row A"},{"layer":2,"positions":3,"first_number":13,"label":null}]}`
	if a.Status != http.StatusOK || strings.TrimSpace(string(a.Body)) != expected || a.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" {
		t.Errorf("%v %v %s", a, a.Header, a.Body)
	}
	if again := s.Do(0, "", http.MethodGet, path, map[string]string{"If-None-Match": a.Header.Get("ETag")}, nil); again.Status != http.StatusNotModified {
		t.Errorf("known already: %v", again)
	}
}
