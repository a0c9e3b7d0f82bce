package devstack

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// interrupted is a context that ends as soon as a file is there.
type interrupted struct {
	context.Context
	file  string
	once  sync.Once
	ended chan struct{}
}

func (c *interrupted) Done() <-chan struct{} {
	if _, err := os.Stat(c.file); err == nil {
		c.once.Do(func() { close(c.ended) })
	}
	return c.ended
}

func (c *interrupted) Err() error {
	select {
	case <-c.Done():
		return context.Canceled
	default:
		return nil
	}
}

func TestAStartThatWasInterruptedDoesNotSpoilTheFolder(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	// Ctrl-C when the cluster has been made and Postgres does not run yet.
	ctx := &interrupted{Context: t.Context(), file: filepath.Join(dir, "postgres", "PG_VERSION"), ended: make(chan struct{})}
	if s, err := Start(ctx, Options{Dir: dir, Unsafe: true}); err == nil {
		_ = s.Stop()
		t.Fatal("it was not interrupted")
	}
	begin(t, Options{Dir: dir, Unsafe: true})
}
