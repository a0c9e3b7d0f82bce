package draw_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/platform/timestamp"
	"triprize/internal/service/draw"
	"triprize/internal/store/drawrecord"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// authorities stamp as a test says, and note what they were asked to stamp.
type authorities struct {
	stamp func() ([]timestamp.Token, error)
	asked []fairdraw.Hash
	whom  [][]fairdraw.Hash
}

func (a *authorities) Stamp(_ context.Context, digest fairdraw.Hash, whom []fairdraw.Hash) ([]timestamp.Token, error) {
	a.asked, a.whom = append(a.asked, digest), append(a.whom, whom)
	return a.stamp()
}

var (
	first, second, stranger = fairdraw.Hash{1}, fairdraw.Hash{2}, fairdraw.Hash{3}
	errSilent               = errors.New("an authority is silent")
)

// Tokens of the authorities that the rules name are stored as they come, each once, and
// the draw asks no more when it has all.
func TestTheAuthoritiesThatTheRulesNameStampTheFreezeRecord(t *testing.T) {
	t.Parallel()
	db, s := servers.DB(t), newSigner(t)
	id := withBeacon(t, db, s, first, second)
	ref := fixture.SellOut(t, db, id)
	a := &authorities{}
	drawer := drawerWith(t, db, draw.Options{Stamper: a})
	now := time.Now()
	a.stamp = func() ([]timestamp.Token, error) {
		return []timestamp.Token{
			{Authority: first, DER: []byte("one"), GenTime: now, Accuracy: time.Second},
			{Authority: stranger, DER: []byte("nobody has asked"), GenTime: now},
			{Authority: second, DER: []byte("late"), GenTime: now, Accuracy: time.Hour}, // perhaps after the round
		}, errSilent
	}
	_, err := drawer.Run(t.Context(), ref)
	if wait := waits(t, err); wait.After > time.Second {
		t.Errorf("the second authority is asked again in %s", wait.After)
	}
	a.stamp = func() ([]timestamp.Token, error) {
		return []timestamp.Token{{Authority: first, DER: []byte("again"), GenTime: now}, {Authority: second, DER: []byte("two"), GenTime: now}}, nil
	}
	_, err = drawer.Run(t.Context(), ref)
	f := frozen(t, db, id)
	if wait := waits(t, err); !wait.RetryAt.Equal(s.DueAt(*f.Round)) {
		t.Errorf("with all tokens it waits for %s", wait.Reason)
	}
	tokens, err := drawrecord.TokensOf(t.Context(), db, id)
	if err != nil || len(tokens) != 2 || string(tokens[0].Token) != "one" || string(tokens[1].Token) != "two" {
		t.Errorf("the tokens are %s, %v", tokens, err)
	}
	_, err = drawer.Run(t.Context(), ref)
	_ = waits(t, err)
	if len(a.asked) != 2 || a.asked[0] != fairdraw.FreezeHash(f.Record) || a.asked[1] != a.asked[0] {
		t.Errorf("they were asked to stamp %s", a.asked)
	}
	if !slices.Equal(a.whom[0], []fairdraw.Hash{first, second}) || !slices.Equal(a.whom[1], []fairdraw.Hash{second}) {
		t.Errorf("asked were %s: who has answered is not asked again", a.whom)
	}
	if lock, version := execution(t, db, id); lock != nil || version != 2 {
		t.Errorf("lock %v, version %d: a claim was taken with all tokens there", lock, version)
	}
	s.know(t, db, *f.Round)
	if _, err := drawer.Run(t.Context(), ref); err != nil {
		t.Error(err)
	}
	fixture.Sound(t, db)
}

// Within the margin before its round nobody is asked any more, and the draw goes on
// without a timestamp.
func TestADrawWhoseAuthoritiesAreSilentGoesOnWithoutTimestamps(t *testing.T) {
	t.Parallel()
	db, s := servers.DB(t), newSigner(t)
	a := &authorities{stamp: func() ([]timestamp.Token, error) { return nil, errSilent }}
	for name, options := range map[string]draw.Options{"they are silent": {Stamper: a}, "none is configured": {}} {
		id := withBeacon(t, db, s, first)
		ref := fixture.SellOut(t, db, id)
		_, err := drawerWith(t, db, options).Run(t.Context(), ref)
		f := frozen(t, db, id)
		due := s.DueAt(*f.Round)
		if wait := waits(t, err); !wait.RetryAt.Before(due) {
			t.Errorf("%s: it waits until %s", name, wait.RetryAt)
		}
		options.Margin = time.Hour
		asked := len(a.asked)
		_, err = drawerWith(t, db, options).Run(t.Context(), ref)
		if wait := waits(t, err); !wait.RetryAt.Equal(due) || len(a.asked) != asked {
			t.Errorf("%s: after the margin it waits until %s, or was asked", name, wait.RetryAt)
		}
		s.know(t, db, *f.Round)
		if _, err := drawerWith(t, db, options).Run(t.Context(), ref); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := servers.Value[int](t, db, `SELECT count(*) FROM timestamp_tokens`); n != 0 {
		t.Errorf("%d tokens", n)
	}
	fixture.Sound(t, db)
}
