package tracing

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"
)

// SQL returns the tracer of a pool's statements, or none while tracing is off. Spans have the text of statements,
// not their parameters.
func SQL() []pgx.QueryTracer {
	t := tracer.Load()
	if t == nil {
		return nil
	}
	of := otelpgx.NewTracer(otelpgx.WithTracerProvider(t.provider), otelpgx.WithDisableConnectionDetailsInAttributes())
	return []pgx.QueryTracer{statements{of, of, of}}
}

// statements are the parts of otelpgx that we use: no spans for connections and preparations.
type statements struct {
	pgx.QueryTracer
	pgx.BatchTracer
	pgxpool.AcquireTracer
}

func recorded(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// Commands is the hook of a Redis client. Spans have the names of commands and no keys, which may name users.
// (redisotel would format the commands of every pipeline, recorded or not.)
type Commands struct{}

// DialHook implements redis.Hook.
func (Commands) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (Commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !recorded(ctx) {
			return next(ctx, cmd)
		}
		ctx, span := Call(ctx, "redis "+cmd.Name(), "db.system.name", "redis")
		err := next(ctx, cmd)
		span.End(unlessNil(err))
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (Commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !recorded(ctx) {
			return next(ctx, cmds)
		}
		ctx, span := Call(ctx, "redis pipeline", "db.system.name", "redis", "db.operation.batch.size", strconv.Itoa(len(cmds)))
		err := next(ctx, cmds)
		span.End(unlessNil(err))
		return err
	}
}

// unlessNil returns err, or nil for redis.Nil.
func unlessNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// Transport returns base, or while tracing is on a transport that adds a span and a traceparent to requests.
func Transport(base *http.Transport) http.RoundTripper {
	if !On() {
		return base
	}
	return transport{base}
}

type transport struct{ *http.Transport }

// RoundTrip implements http.RoundTripper. The caller has made r for this call.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, span := Call(r.Context(), r.Method, "http.request.method", r.Method, "server.address", r.URL.Host, "url.path", r.URL.Path)
	if traceparent := of(ctx).Traceparent(); traceparent != "" {
		r = r.Clone(ctx)
		r.Header.Set("traceparent", traceparent)
	}
	response, err := t.Transport.RoundTrip(r)
	if err == nil {
		span.Set("http.response.status_code", strconv.Itoa(response.StatusCode))
	}
	span.End(err)
	return response, err
}
