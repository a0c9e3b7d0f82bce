//go:build failpoint

package httpapi_test

import (
	"net/http"
	"testing"

	"triprize/internal/platform/failpoint"
	"triprize/internal/testkit/fleet"
)

// While as many proofs are sent as may be, others are told to come back; everything else
// goes on.
func TestFewProofsAreSentAtOnce(t *testing.T) { //nolint:paralleltest // the failpoint is everybody's
	s := fleet.Start(t, fleet.Options{Env: []string{"TRIPRIZE_PROOFS_MAX_OPEN=2", "TRIPRIZE_PROOFS_MAX_PER_CALLER=1"}})
	path, _ := drawnCampaign(s)
	arrived, goOn := make(chan struct{}, 2), make(chan struct{})
	defer failpoint.Set("httpapi.proof", "", func() { arrived <- struct{}{}; <-goOn })()
	sent := make(chan error, 2)
	read := func(header map[string]string) {
		_, _, err := plain(t, http.MethodGet, s.URLs[0]+path+"/proof", header)
		sent <- err
	}
	go read(nil)
	<-arrived
	if a := s.Do(0, "", http.MethodGet, path+"/proof", nil, nil); a.Status != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" {
		t.Errorf("a second one from this address: %v", a)
	}
	go read(map[string]string{"Authorization": "Bearer " + s.App})
	<-arrived
	if a := s.Do(0, s.Operator, http.MethodGet, path+"/proof", nil, nil); a.Status != http.StatusServiceUnavailable || a.Refusal() != "overloaded" || a.Header.Get("Retry-After") == "" {
		t.Errorf("a third one: %v", a)
	}
	if a := s.Do(0, "", http.MethodGet, path, nil, nil); a.Status != http.StatusOK {
		t.Errorf("the draw itself: %v", a)
	}
	close(goOn)
	for range 2 {
		if err := <-sent; err != nil {
			t.Error(err)
		}
	}
}
