// Package export writes what accountants read: rows of a period or of a moment, as CSV or JSON lines.
//
// An export reads pages by key, each in a statement of its own ([books.Page]), and keeps one of them in memory. Between two
// pages it holds no transaction and no connection. It changes nothing.
package export

import (
	"bufio"
	"context"
	"errors"
	"hash"
	"io"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"triprize/internal/books"
	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Parameters are those of a request, as they were sent; empty: left out.
type Parameters struct {
	Kind      string // see Kinds
	From, To  string // days, 2006-01-02; To is not included
	Zone      string // IANA; empty: UTC
	AsOf      string // of wallets: the day at whose beginning they are shown; empty: To
	Separator string // of CSV: comma or semicolon; empty: comma
	Lines     bool   // JSON lines instead of CSV
	Client    *string
	Rules     books.Rules // of the journal
}

// Request is a checked request.
type Request struct {
	Kind    string
	Period  books.Period
	AsOf    time.Time // of wallets
	Client  *string   // whose rows they are; nil: everybody's
	Lines   bool
	Rules   books.Rules
	comma   rune
	of      kind
	printed *time.Location
}

// kind is a kind of rows.
type kind struct {
	ofClients bool // an app may export those of its client
	row       reflect.Type
	rows      func(*Export, context.Context) iter.Seq2[any, error] // pointers to rows
}

var kinds = map[string]kind{
	"journal":   {false, reflect.TypeFor[books.Line](), (*Export).journal},
	"purchases": {true, reflect.TypeFor[purchaseRow](), (*Export).purchases},
	"refunds":   {true, reflect.TypeFor[refundRow](), (*Export).refunds},
	"disputes":  {true, reflect.TypeFor[disputeRow](), (*Export).disputes},
	"payouts":   {false, reflect.TypeFor[payoutRow](), (*Export).payouts},
	"wallets":   {true, reflect.TypeFor[walletRow](), (*Export).wallets},
	"ledger":    {false, reflect.TypeFor[ledgerRow](), (*Export).ledger},
}

// Kinds returns the names of the kinds.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

var separators = map[string]rune{"": ',', "comma": ',', "semicolon": ';'}

// Check returns the request, or an invalid-request Error that names the parameter, or a forbidden one for a kind that a
// client may not export.
func (p Parameters) Check() (r Request, err error) {
	invalid := func(name, detail string) (Request, error) {
		return Request{}, fault.Invalid(fault.Field{Pointer: name, Detail: detail})
	}
	r = Request{Kind: p.Kind, Client: p.Client, Lines: p.Lines, Rules: p.Rules, of: kinds[p.Kind], comma: separators[p.Separator]}
	isWallets := p.Kind == "wallets"
	switch {
	case r.of.rows == nil:
		return invalid("kind", "must be one of "+strings.Join(Kinds(), ", "))
	case p.Client != nil && !r.of.ofClients:
		return Request{}, fault.New(fault.Forbidden, "only operators and viewers may export the %s of the installation", p.Kind)
	case r.comma == 0:
		return invalid("?separator", "must be comma or semicolon")
	case p.AsOf != "" && !isWallets:
		return invalid("?as_of", "is for wallets only")
	case p.AsOf != "" && (p.From != "" || p.To != ""):
		return invalid("?as_of", "does not go with from and to")
	}
	if isWallets && p.From == "" {
		asOf, name := p.AsOf, "?as_of"
		if p.To != "" {
			asOf, name = p.To, "?to"
		}
		day, bad := time.Parse(time.DateOnly, asOf)
		if bad != nil {
			return invalid(name, "must be a day, as 2026-11-01")
		}
		r.Period, err = books.ParsePeriod(asOf, day.AddDate(0, 0, 1).Format(time.DateOnly), p.Zone)
		r.AsOf = r.Period.From
	} else {
		r.Period, err = books.ParsePeriod(p.From, p.To, p.Zone)
		r.AsOf = r.Period.To
	}
	r.printed = r.AsOf.Location()
	return r, err
}

// ContentType is the media type of what is written.
func (r Request) ContentType() string {
	if r.Lines {
		return "application/x-ndjson"
	}
	return "text/csv; charset=utf-8; header=present"
}

// FileName is a name for what is written.
func (r Request) FileName() string {
	days := r.AsOf.Format(time.DateOnly)
	if r.Kind != "wallets" {
		days = r.Period.From.Format(time.DateOnly) + "-" + r.Period.To.Format(time.DateOnly)
	}
	if r.Lines {
		return "triprize-" + r.Kind + "-" + days + ".ndjson"
	}
	return "triprize-" + r.Kind + "-" + days + ".csv"
}

// Export is an export that has begun: its first page is read. Write writes it, or Close ends it.
type Export struct {
	Request
	// Report is told, if it is set, how many rows are written and which share of the export that is, from 0 to 1.
	Report func(rows int, share float64)

	db     postgres.DB
	share  float64
	cancel context.CancelFunc
	next   func() (row any, err error, ok bool)
	stop   func()
	first  any  // nil: the first page has no row
	more   bool // after it
}

// Open reads the first page. ctx bounds this alone.
func Open(ctx context.Context, db postgres.DB, r Request) (*Export, error) {
	e := &Export{Request: r, db: db}
	reading, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e.cancel = cancel
	defer context.AfterFunc(ctx, cancel)()
	e.next, e.stop = iter.Pull2(r.of.rows(e, reading))
	row, err, more := e.next()
	if err != nil {
		e.Close()
		return nil, err
	}
	e.first, e.more = row, more
	return e, nil
}

// Close ends the export. It may be called twice.
func (e *Export) Close() {
	e.cancel()
	e.stop()
}

// reportRows is how many rows are written between two reports.
const reportRows = 1000

// Write writes all rows, and closes the export. After an error what is written is not complete.
func (e *Export) Write(ctx context.Context, w io.Writer) error {
	defer e.Close()
	defer context.AfterFunc(ctx, e.cancel)()
	out := bufio.NewWriterSize(w, 32<<10)
	encode, end := e.encoder(out, true)
	row, err, more := e.first, error(nil), e.more
	for n := 0; more; {
		if err != nil {
			return err
		}
		if row != nil {
			if err := encode(row); err != nil {
				return err
			}
			n++
		}
		if e.Report != nil && n%reportRows == 0 {
			e.Report(n, e.share)
		}
		row, err, more = e.next()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(end(), out.Flush())
}

// journal are the lines of the books.
func (e *Export) journal(ctx context.Context) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for line, err := range books.Journal(ctx, e.db, e.Period, e.Rules) {
			if at, bad := time.Parse(time.DateOnly, line.Date); bad == nil {
				e.share = shareOf(e.Period.From, at, e.Period.To)
			}
			if !yield(&line, err) || err != nil {
				return
			}
		}
	}
}

// Hashed is the form of a journal whose hash is stored with its month: CSV with commas. It is a [books.Encode].
func Hashed(w hash.Hash, first bool) (write func(books.Line) error, flush func() error) {
	out := bufio.NewWriter(w)
	e := Export{Request: Request{Kind: "journal", of: kinds["journal"], comma: ','}}
	encode, end := e.encoder(out, first)
	return func(line books.Line) error { return encode(&line) }, func() error { return errors.Join(end(), out.Flush()) }
}
