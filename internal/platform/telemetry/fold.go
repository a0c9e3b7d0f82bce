package telemetry

import (
	"context"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// foldFor is how long lines that say the same are counted and not written.
	foldFor = time.Minute
	// mostKinds bounds the kinds of lines that are known at a time. Any more are told apart by
	// their message alone.
	mostKinds = 512
)

// Foldable is the context of lines below WARN that are folded like those above.
var Foldable = context.WithValue(context.Background(), folding{}, folded)

// FoldableByAddress is the same for lines that their address tells apart.
var FoldableByAddress = context.WithValue(context.Background(), folding{}, foldedByAddress)

// unfolded is the context of lines of WARN and above that are never folded: a line that says that
// something has begun belongs to one that says that it has ended.
var unfolded = context.WithValue(context.Background(), folding{}, never)

// folding says how a line is folded, and is its key in a context.
type folding struct{}

type foldsHow int

const (
	byLevel foldsHow = iota // folded from WARN on
	never
	folded
	foldedByAddress
)

// fold is a handler of log lines. The lines of an outage would be one for each request; of those
// that say the same it writes the first at once and counts the others. At the end of the minute
// a line "repeated" has their count, and the attributes of the last one. It folds lines of WARN
// and above, and Foldable ones.
type fold struct {
	slog.Handler
	with  string // what WithAttrs and WithGroup have added, as a part of the kind
	folds *folds
}

// folds are the kinds of lines that were written within the last minute.
type folds struct {
	mu    sync.Mutex
	kinds map[string]*repeats
	lines *lines
}

// repeats are the lines of a kind since the one that was written.
type repeats struct {
	since   time.Time
	handler slog.Handler
	count   int
	last    slog.Record
	end     *time.Timer // nil while nothing is repeated
}

func newFold(handler slog.Handler, out *lines) *fold {
	return &fold{Handler: handler, folds: &folds{kinds: make(map[string]*repeats), lines: out}}
}

// Flush writes the lines that wait, and the counts of those that are repeated just now. Call it before the
// process ends.
func Flush(logger *slog.Logger) {
	f, ok := logger.Handler().(*fold)
	if !ok {
		return
	}
	defer f.folds.lines.flush()
	f.folds.mu.Lock()
	defer f.folds.mu.Unlock()
	for key, r := range f.folds.kinds {
		f.folds.end(key, r)
	}
}

// Handle implements slog.Handler.
func (f *fold) Handle(ctx context.Context, line slog.Record) error {
	how, _ := ctx.Value(folding{}).(foldsHow)
	if (how >= folded || how == byLevel && line.Level >= slog.LevelWarn) && f.folds.repeats(f, line, how == foldedByAddress) { //nolint:contextcheck // the line with the count has no caller
		return nil
	}
	return f.Handler.Handle(ctx, line)
}

// WithAttrs implements slog.Handler.
func (f *fold) WithAttrs(all []slog.Attr) slog.Handler {
	with := f.with
	for _, a := range all {
		with += partOfKind(a)
	}
	return &fold{f.Handler.WithAttrs(all), with, f.folds}
}

// WithGroup implements slog.Handler.
func (f *fold) WithGroup(name string) slog.Handler {
	return &fold{f.Handler.WithGroup(name), f.with + "\x00" + name, f.folds}
}

// repeats tells whether a line says what another has said within the last minute, and counts it.
func (a *folds) repeats(f *fold, line slog.Record, byAddress bool) bool {
	key := f.kindOf(line, byAddress)
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kinds[key] == nil && len(a.kinds) >= mostKinds {
		if a.forget(now); len(a.kinds) >= mostKinds {
			key = withoutNumbers(line.Message)
		}
	}
	r := a.kinds[key]
	if r == nil || r.end == nil && now.Sub(r.since) >= foldFor {
		a.kinds[key] = &repeats{since: now, handler: f.Handler}
		return false
	}
	r.count++
	r.last = line.Clone()
	if r.end == nil {
		r.end = time.AfterFunc(foldFor-now.Sub(r.since), func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.end(key, r)
		})
	}
	return true
}

// forget forgets the kinds whose minute is over and that nothing has repeated.
func (a *folds) forget(now time.Time) {
	for key, r := range a.kinds {
		if r.end == nil && now.Sub(r.since) >= foldFor {
			delete(a.kinds, key)
		}
	}
}

// end forgets a kind, and writes how often it was repeated.
func (a *folds) end(key string, r *repeats) {
	if a.kinds[key] != r {
		return // a flush was faster
	}
	delete(a.kinds, key)
	if r.end == nil {
		return
	}
	r.end.Stop()
	line := slog.NewRecord(time.Now(), r.last.Level, "repeated", 0)
	line.AddAttrs(slog.String("line", r.last.Message), slog.Int("count", r.count), slog.Time("since", r.since))
	r.last.Attrs(func(a slog.Attr) bool { line.AddAttrs(a); return true })
	_ = r.handler.Handle(context.Background(), line) // like any other line that cannot be written
}

// kindOf returns what lines that say the same have in common: level, message, and the attributes
// that say what the line is about.
func (f *fold) kindOf(line slog.Record, byAddress bool) string {
	var kind strings.Builder
	kind.WriteString(strconv.Itoa(int(line.Level)) + f.with + "\x00" + withoutNumbers(line.Message))
	line.Attrs(func(a slog.Attr) bool {
		if byAddress && a.Key == "address" {
			kind.WriteString("\x00" + a.Value.String())
		}
		kind.WriteString(partOfKind(a))
		return true
	})
	return kind.String()
}

// partOfKind returns the part of a kind that an attribute is; "" for what differs from line to
// line although they say the same: which request or task it was, and numbers and times. Of an
// error it is the text without its numbers and ids. Ids of other things are a part: no line about
// a campaign, a payment or a job is folded into one about another.
func partOfKind(a slog.Attr) string {
	switch a.Key {
	case "request_id", "trace_id", "span_id", "path", "address", "client", "task":
		return ""
	}
	value := a.Value.Resolve()
	switch value.Kind() {
	case slog.KindString:
		return "\x00" + a.Key + "=" + value.String()
	case slog.KindAny:
		switch v := value.Any().(type) {
		case error:
			return "\x00" + a.Key + "=" + withoutNumbers(v.Error())
		case interface{ String() string }:
			return "\x00" + a.Key + "=" + v.String()
		}
		if v := reflect.ValueOf(value.Any()); v.Kind() == reflect.String { // a kind, a state, a code
			return "\x00" + a.Key + "=" + v.String()
		}
	}
	return ""
}

// longestText is how much of a text tells it from others.
const longestText = 256

// withoutNumbers returns the beginning of a text, with # for each word that has a digit.
func withoutNumbers(text string) string {
	text = text[:min(len(text), longestText)]
	var plain strings.Builder
	word := 0 // its beginning
	end := func(at int) {
		if strings.ContainsAny(text[word:at], "0123456789") {
			plain.WriteByte('#')
		} else {
			plain.WriteString(text[word:at])
		}
	}
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') && c != '-' && c < 0x80 {
			end(i)
			plain.WriteByte(c)
			word = i + 1
		}
	}
	end(len(text))
	return plain.String()
}
