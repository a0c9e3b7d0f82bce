package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"triprize/internal/platform/webhookhttp"
)

// How listen goes about a connection that breaks, and a receiver that is away.
const (
	forwardTimeout  = 15 * time.Second // one request, as in production
	listenPause     = time.Second      // before it connects again
	forwardLongest  = 30 * time.Second // between two attempts
	longestFrame    = 1 << 20          // bytes of a line of the stream
	listenHeaderMax = 30 * time.Second // until the server answers
)

func listenCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "listen --forward-to URL",
		Short: "Forward the webhooks of an app to an address of this machine, until Ctrl-C",
		Long: `Forward what an endpoint of the app would be sent to an address that the server cannot
reach, such as one of your own machine. Each event is signed with a secret that is printed at the
start, or with that of --secret. An event that the receiver does not take is sent again until it
does, and does not stop those behind it. With --resume it goes on where it was ended, with the same
secret, within an hour: what the receiver has not taken comes, and what came after that comes again.`,
		Args: cobra.NoArgs,
	}
	l := &listening{}
	flags := c.Flags()
	flags.StringVar(&l.api, "api", os.Getenv("API"), "address of the api (default: $API)")
	flags.StringVar(&l.keyFile, "key-file", "", "file with the API key of the app (default: the key is in $APP)")
	flags.StringVar(&l.events, "events", "*", "events to hear of, separated by commas, such as purchase.*,campaign.drawn")
	flags.StringVar(&l.target, "forward-to", "", "where to send them")
	flags.StringVar(&l.state.Secret, "secret", "", "sign with this secret, whsec_… (default: a random one)")
	flags.StringVar(&l.file, "resume", "", "file to remember in how far it has come")
	_ = c.MarkFlagRequired("forward-to")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := l.prepare(); err != nil {
			return err
		}
		defer l.sender.Close()
		l.out = cmd.OutOrStdout()
		say(l.out, "secret %s", l.state.Secret)
		return l.run(cmd.Context(), cmd.ErrOrStderr())
	}
	return c
}

// listening is one run of listen.
type listening struct {
	api, key, keyFile, events, target string

	sender *webhookhttp.Sender
	deliveries
}

func (l *listening) prepare() error {
	for flag, text := range map[string]string{"--api": l.api, "--forward-to": l.target} {
		if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("%s must be an http or https URL", flag)
		}
	}
	if err := l.readKey(); err != nil {
		return err
	}
	wanted := l.state.Secret
	if l.file != "" {
		data, err := os.ReadFile(l.file)
		if err == nil {
			err = json.Unmarshal(data, &l.state)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("--resume: %w", err)
		}
	}
	if wanted != "" {
		l.state.Secret = wanted
	}
	if l.state.Secret == "" {
		l.state.Secret = webhookhttp.NewSecret()
	}
	if !strings.HasPrefix(l.state.Secret, "whsec_") {
		return errors.New("--secret must begin with whsec_")
	}
	l.waiting = make(chan struct{}, mostWaiting)
	guard, err := webhookhttp.NewGuard("0.0.0.0/0,::/0") // its user chooses the address
	l.sender = webhookhttp.NewSender(guard, forwardTimeout, webhookhttp.Options{})
	return err
}

// readKey reads the API key: never from the command line, which all users of a machine see.
func (l *listening) readKey() error {
	l.key = os.Getenv("APP")
	if l.keyFile != "" {
		data, err := os.ReadFile(l.keyFile)
		if err != nil {
			return fmt.Errorf("--key-file: %w", err)
		}
		l.key = strings.TrimSpace(string(data))
	}
	if l.key == "" {
		return errors.New("the API key of an app is missing: set APP in the environment, or --key-file")
	}
	return nil
}

// errRefused means that the server will not let this listener listen, however often it asks.
var errRefused = errors.New("refused")

// run listens until ctx ends, which is no error.
func (l *listening) run(ctx context.Context, news io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer func() { stop(); l.retries.Wait() }()
	for {
		err := l.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return nil // Ctrl-C
		case errors.Is(err, errRefused):
			return err
		case err != nil:
			say(news, "the stream has broken, and is opened again: %v", err)
		}
		_ = pause(ctx, listenPause) // at its end connect fails, too
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// connect reads one stream to its end.
func (l *listening) connect(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(l.api, "/")+"/v1/webhook-stream?events="+url.QueryEscape(l.events), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+l.key)
	place := l.begin()
	if place != "" {
		request.Header.Set("Last-Event-ID", place)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
	transport.ResponseHeaderTimeout = listenHeaderMax
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	switch {
	case response.StatusCode == http.StatusNotFound && place != "":
		l.forget()
		return errors.New("nobody listened for an hour: the events since then are gone; it begins anew")
	case response.StatusCode >= 400 && response.StatusCode < 500 && response.StatusCode != http.StatusTooManyRequests:
		problem, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		return fmt.Errorf("the server has %w this: %s %s", errRefused, response.Status, problem)
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("the server answers %s", response.Status)
	}
	return l.read(ctx, response.Body)
}

// read takes the events of a stream. A line that is cut off ends it, and is read again.
func (l *listening) read(ctx context.Context, body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 64<<10), longestFrame)
	var id, name, data string
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			data += value
		case "":
			if lines.Text() != "" || name == "" {
				continue // a heartbeat, or a hint
			}
			if err := l.take(ctx, id, name, data); err != nil {
				return err
			}
			id, name, data = "", "", ""
		}
	}
	return lines.Err()
}
