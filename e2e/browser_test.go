//go:build web

package e2e

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/chromedp/chromedp"

	"triprize/internal/testkit/servers"
)

// tab is a tab of a headless Chromium of its own.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func browse(t *testing.T, address string) tab {
	t.Helper()
	allocator, stop := chromedp.NewExecAllocator(context.Background(), chromedp.DefaultExecAllocatorOptions[:]...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	if err := chromedp.Do(ctx, chromedp.Navigate(address)); err != nil {
		t.Fatalf("Chromium (make browser installs it): %v", err)
	}
	return tab{t, ctx}
}

// try sets into to the value of an expression, or of its promise.
func (b tab) try(expression string, into any) error {
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`(async () => JSON.stringify((await (`+expression+`)) ?? null))()`, chromedp.EvalAwaitPromise))
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), into)
}

// do runs an expression.
func (b tab) do(expression string) {
	b.t.Helper()
	var ignored any
	if err := b.try(`(() => {`+expression+`})()`, &ignored); err != nil {
		b.t.Fatal(err)
	}
}

// await waits until an expression is true, also while the tab goes to another page.
func (b tab) await(expression string) {
	b.t.Helper()
	servers.Eventually(b.t, expression, func() bool {
		var holds bool
		return b.try("!!("+expression+")", &holds) == nil && holds
	})
}
