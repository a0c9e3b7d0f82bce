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
start. An event that the receiver does not take is sent again until it does. With --resume
it goes on where it was ended, with the same secret, within an hour.`,
		Args: cobra.NoArgs,
	}
	l := &listening{out: c.OutOrStdout}
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
		say(cmd.OutOrStdout(), "secret %s", l.state.Secret)
		return l.run(cmd.Context(), cmd.ErrOrStderr())
	}
	return c
}

// listening is one run of listen.
type listening struct {
	api, key, keyFile, events, target, file string

	out    func() io.Writer
	sender *webhookhttp.Sender
	state  listenState
}

// listenState is what a run leaves to the next one.
type listenState struct {
	Place  string `json:"place"` // the id of the last event that was taken
	Secret string `json:"secret"`
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
	for {
		err := l.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // Ctrl-C
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
	if l.state.Place != "" {
		request.Header.Set("Last-Event-ID", l.state.Place)
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
	case response.StatusCode == http.StatusNotFound && l.state.Place != "":
		l.state.Place = ""
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

// take forwards an event until its receiver takes it, and remembers how far it has come.
func (l *listening) take(ctx context.Context, id, name, data string) error {
	if name == "webhook" {
		var event struct {
			ID      string          `json:"webhook_id"`
			Message json.RawMessage `json:"message"`
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return fmt.Errorf("an event of the stream: %w", err)
		}
		if err := l.forward(ctx, event.ID, event.Message); err != nil {
			return err
		}
	}
	if id == "" {
		return nil
	}
	l.state.Place = id
	if l.file == "" {
		return nil
	}
	return writeJSON(l.file, l.state)
}

func (l *listening) forward(ctx context.Context, id string, message json.RawMessage) error {
	var about struct{ Type string }
	_ = json.Unmarshal(message, &about) // it is for the line below only
	for wait := listenPause; ; wait = min(2*wait, forwardLongest) {
		answer := l.sender.Send(ctx, l.target, webhookhttp.Message{ID: id, Body: message, Secrets: []string{l.state.Secret}})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if answer.Arrived() {
			say(l.out(), "%s %s %s %d", time.Now().Format(time.TimeOnly), id, about.Type, answer.Status)
			return nil
		}
		say(l.out(), "%s %s %s %s; again in %s", time.Now().Format(time.TimeOnly), id, about.Type, answer.Text(), wait)
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}
