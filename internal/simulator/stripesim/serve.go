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
