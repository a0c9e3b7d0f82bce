package apikey

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"triprize/internal/platform/postgres"
)

const (
	// usesEvery is how often a process writes which keys were used. All keys share a statement.
	usesEvery = time.Minute
	// usesKept bounds the keys that wait to be written; the uses of others are forgotten.
	usesKept = cached
	// usesTimeout bounds a statement, also the one at the end of a process.
	usesTimeout = 2 * time.Second
)

// uses notes in the background when keys were used. A request only looks at a map; nobody
// waits for the database. The first use is written at once, and later ones a minute
// after the write before. Uses that cannot be written wait for the next time.
type uses struct {
	db    postgres.DB
	noted sync.Map // prefix → time.Time of the first use since the last write
	count atomic.Int64
	some  chan struct{} // capacity 1: there is something to write
	end   chan struct{}
	done  chan struct{}
}

func newUses(db postgres.DB) *uses {
	u := &uses{db: db, some: make(chan struct{}, 1), end: make(chan struct{}), done: make(chan struct{})}
	go u.run()
	return u
}

// note notes that a key is used now.
func (u *uses) note(prefix string) {
	if _, known := u.noted.Load(prefix); known || u.count.Load() >= usesKept {
		return
	}
	if _, known := u.noted.LoadOrStore(prefix, time.Now()); known {
		return
	}
	u.count.Add(1)
	select {
	case u.some <- struct{}{}:
	default:
	}
}

// close writes what is noted and ends.
func (u *uses) close() {
	close(u.end)
	<-u.done
}

func (u *uses) run() {
	defer close(u.done)
	for {
		select {
		case <-u.some:
		case <-u.end:
			u.write()
			return
		}
		u.write()
		pause := time.NewTimer(usesEvery)
		select {
		case <-pause.C:
		case <-u.end:
			pause.Stop()
			u.write()
			return
		}
	}
}

// write writes what is noted, and notes it again when that fails.
func (u *uses) write() {
	var prefixes []string
	var ages []float64 // seconds since the use
	times := make(map[string]time.Time)
	u.noted.Range(func(key, value any) bool {
		prefix, at := key.(string), value.(time.Time) //nolint:forcetypeassert // note stores nothing else
		u.noted.Delete(prefix)
		u.count.Add(-1)
		prefixes, ages = append(prefixes, prefix), append(ages, time.Since(at).Seconds())
		times[prefix] = at
		return true
	})
	if len(prefixes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), usesTimeout)
	defer cancel()
	if err := recordUses(ctx, u.db, prefixes, ages); err != nil {
		for prefix, at := range times {
			if _, known := u.noted.Swap(prefix, at); !known {
				u.count.Add(1)
			}
		}
		select {
		case u.some <- struct{}{}:
		default:
		}
	}
}

// recordUses sets when keys were last used, so many seconds ago. A key that another
// process has noted for the same minute is left alone, and so is one that is
// locked: whoever locks it notes it too, or revokes it.
func recordUses(ctx context.Context, db postgres.DB, prefixes []string, ages []float64) error {
	_, err := db.Exec(ctx, `
		WITH used AS (
			SELECT k.prefix, clock_timestamp() - u.age * interval '1 second' AS at
			FROM unnest($1::text[], $2::float8[]) AS u (prefix, age) JOIN api_keys k ON k.prefix = u.prefix
			WHERE k.last_used_at IS NULL OR k.last_used_at <= clock_timestamp() - (u.age + $3) * interval '1 second'
			FOR NO KEY UPDATE OF k SKIP LOCKED)
		UPDATE api_keys k SET last_used_at = used.at FROM used WHERE k.prefix = used.prefix`, prefixes, ages, usesEvery.Seconds())
	if err != nil {
		return fmt.Errorf("apikey.recordUses: %w", err)
	}
	return nil
}
