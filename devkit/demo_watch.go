package devkit

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	viewerPatience = 3 * time.Second  // for a browser to show the page
	watched        = 10 * time.Second // a sale that somebody watches
)

// page is the address of the live picture.
func (d *demo) page() string { return d.url() + "/c/" + d.report.CampaignID.String() }

// awaitViewer opens the page in the browser and waits a moment.
func (d *demo) awaitViewer(ctx context.Context) error {
	opened := make(chan error, 1)
	go func() { opened <- browse(d.page()) }() // it can last as long as the browser: it ends with this process
	enough := time.After(viewerPatience)
	for {
		select {
		case err := <-opened:
			if err != nil {
				say(d.progress, "no browser was opened, open the address yourself: %v", err)
				return nil
			}
		case <-enough:
			return nil
		case <-ctx.Done():
			return errInterrupted
		}
	}
}

// browse opens an address in the user's browser. It may return at once, or when the browser ends.
func browse(address string) error {
	opener := "xdg-open"
	if runtime.GOOS == "darwin" {
		opener = "open"
	}
	cmd := exec.Command(opener, address)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C ends the demo, not the browser
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", opener, err)
	}
	return nil
}

// awaitEnd waits until the user has seen the page. It returns at the end of the input, too: then nobody can press Enter.
func (d *demo) awaitEnd(ctx context.Context, input io.Reader) {
	say(d.progress, "\nthe servers run until Enter or Ctrl-C, for %s", d.page())
	entered := make(chan struct{})
	go func() { // a read cannot be interrupted: it ends with this process
		defer close(entered)
		_, _ = input.Read(make([]byte, 1))
	}()
	select {
	case <-entered:
	case <-ctx.Done():
	}
}
