package books

import (
	"context"
	"iter"
	"time"
	_ "time/tzdata" // an image without zones knows them too

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Period is a span of days of a business in its time zone.
type Period struct {
	From, To time.Time // midnights of the zone; To is not included
}

// maxYears bounds a period.
const maxYears = 100

// ParsePeriod reads a period from two days, 2006-01-02, and the IANA name of a zone (empty: UTC). What cannot be read,
// a period without a day, and one of more than 100 years are an invalid-request Error that names the parameter.
func ParsePeriod(from, to, zone string) (Period, error) {
	location, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return Period{}, fault.Invalid(fault.Field{Pointer: "?zone", Detail: "is not the IANA name of a time zone, such as Asia/Tokyo"})
	}
	var p Period
	for _, end := range []struct { // the days themselves, as the zone begins them
		name, text string
		into       *time.Time
	}{{"from", from, &p.From}, {"to", to, &p.To}} {
		day, err := time.Parse(time.DateOnly, end.text)
		if err != nil {
			return Period{}, fault.Invalid(fault.Field{Pointer: "?" + end.name, Detail: "must be a day, as 2026-11-01"})
		}
		*end.into = midnight(day.Year(), day.Month(), day.Day(), location)
	}
	if !p.From.Before(p.To) || p.To.After(p.From.AddDate(maxYears, 0, 0)) {
		return Period{}, fault.Invalid(fault.Field{Pointer: "?to", Detail: "must be a day after from, by 100 years at most"})
	}
	return p, nil
}

// Days yields the days of the period, each as a period.
func (p Period) Days() iter.Seq[Period] {
	return func(yield func(Period) bool) {
		for day := p.From; day.Before(p.To); {
			next := midnight(day.Year(), day.Month(), day.Day()+1, day.Location())
			if !yield(Period{day, next}) {
				return
			}
			day = next
		}
	}
}

// midnight is the first moment of a day: where the clock skips midnight, when it does; of a day that it skips, that of the next.
func midnight(year int, month time.Month, day int, zone *time.Location) time.Time {
	at, want := time.Date(year, month, day, 0, 0, 0, 0, zone), time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Day()
	for range 3 * 60 {
		if at.Day() == want {
			return at
		}
		at = at.Add(time.Minute)
	}
	return midnight(year, month, day+1, zone)
}

// repeated bounds for how long a page is repeated: longer than a standby takes to start.
const repeated = time.Minute

// Page reads a page in a statement of its own. It is repeated when a standby cancels it, because it has to replay what the statement still
// sees, or while the server cannot be reached; not when it takes longer than a statement may.
func Page[T any](ctx context.Context, db postgres.DB, scan pgx.RowToFunc[T], sql string, args ...any) (page []T, err error) {
	ctx, cancel := context.WithTimeout(ctx, repeated)
	defer cancel()
	for {
		if page, err = postgres.Collect(ctx, db, scan, sql, args...); err == nil || !postgres.IsTransient(err) || postgres.IsTooSlow(err) {
			return page, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(200 * time.Millisecond):
		}
	}
}
