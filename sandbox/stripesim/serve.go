package stripesim

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Bounds of connections. A request that is never answered ends by Settings.Hang, so there
// is no limit on the time of an answer.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	mostHeader    = 64 << 10
	endTimeout    = 10 * time.Second
)

// Serve answers on a listener until ctx ends. Then requests that are under way end, and
// the sandbox is closed.
func Serve(ctx context.Context, listener net.Listener, s *Server) error {
	server := &http.Server{Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: mostHeader}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	var failed error
	select {
	case failed = <-served:
	case <-ctx.Done():
		s.Release()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		if err := server.Shutdown(end); err != nil {
			failed = errors.Join(err, server.Close())
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			failed = errors.Join(failed, err)
		}
	}
	return errors.Join(failed, s.Close())
}

// Running is a sandbox that answers in this process.
type Running struct {
	*Server
	URL string

	settings Settings
	end      context.CancelFunc
	ended    chan error
}

// Start starts a sandbox on an address, host:port; port 0 is a free one. It answers until
// Close.
func Start(ctx context.Context, address string, settings Settings) (*Running, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	server, err := New(settings)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx)) // processes that pay with it end first
	r := &Running{Server: server, URL: "http://" + listener.Addr().String(), settings: settings, end: end, ended: make(chan error, 1)}
	go func() { r.ended <- Serve(running, listener, server) }()
	return r, nil
}

// Close ends the sandbox and waits for it.
func (r *Running) Close() error {
	r.end()
	return <-r.ended
}

// Env are the settings by which processes pay at the sandbox. Buyers return to a page of
// the sandbox when a request names no other.
func (r *Running) Env() []string {
	return []string{
		"TRIPRIZE_PAYMENTS_ALLOW_TEST=true", "TRIPRIZE_PAYMENTS_STRIPE_KEY=" + r.settings.Key, "TRIPRIZE_PAYMENTS_STRIPE_URL=" + r.URL,
		"TRIPRIZE_PAYMENTS_STRIPE_WEBHOOK_SECRET=" + r.settings.WebhookSecret, "TRIPRIZE_PAYMENTS_RETURN_URL=" + r.URL + "/returned",
		"TRIPRIZE_PAYMENTS_STRIPE_PAYMENT_METHOD_TYPES=card,konbini",
	}
}
