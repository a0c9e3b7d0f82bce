//go:build failpoint

package httpapi_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"triprize/internal/platform/failpoint"
	"triprize/internal/testkit/fleet"
)

// Slow readers of a few addresses close proofs and lists to nobody else.
func TestAnAddressReadsOneProofAtATimeAndLeavesOthersTheirs(t *testing.T) { // not parallel: the failpoint is of all apis
	s := fleet.Shared(t, busy).With("TRIPRIZE_LIMITS_ADDRESS_RATE=1000")
	path, _ := drawnCampaign(s)
	at, goOn := make(chan struct{}, 9), make(chan struct{})
	remove := failpoint.Set("httpapi.proof", "", func() { at <- struct{}{}; <-goOn })
	defer remove()
	ask := func(host byte, end string) (status int, err error) {
		from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URLs[0]+path+end, nil)
		if err != nil {
			return 0, err
		}
		response, err := (&http.Client{Transport: &http.Transport{DialContext: from.DialContext, DisableKeepAlives: true}}).Do(request)
		if err != nil {
			return 0, err
		}
		defer func() { _ = response.Body.Close() }()
		_, err = io.Copy(io.Discard, response.Body)
		return response.StatusCode, err
	}
	const addresses = 9 // two each were once all that callers without a key had
	done := make(chan error, 2*addresses)
	begin := func(host byte, end string, want int) {
		go func() {
			status, err := ask(2+host, end)
			if err == nil && status != want {
				err = fmt.Errorf("address %d: %d, want %d", host, status, want)
			}
			done <- err
		}()
	}
	for host := range byte(addresses) {
		begin(host, []string{"/proof", "/list"}[host%2], http.StatusOK)
		select {
		case <-at:
		case err := <-done:
			t.Error("refused to another address: ", err)
		}
		begin(host, "/proof", http.StatusTooManyRequests)
		select {
		case <-at:
			t.Error("an address has two")
		case err := <-done:
			if err != nil {
				t.Error("a second one of an address: ", err)
			}
		}
		if t.Failed() {
			break
		}
	}
	close(goOn)
	if t.Failed() {
		return
	}
	for range addresses {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
