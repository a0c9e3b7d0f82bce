package pages

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize.example/draw/beacon"
	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/lifecycle"
	"triprize/internal/platform/readcache"
)

// Snapshot is what the page of a campaign shows. There is nothing about persons in it.
type Snapshot struct {
	Campaign contract.Campaign
	Draw     contract.Draw
	States   []string // of each position, in order (see [states]); nil: its picture has bars
	At       time.Time
}

// NewSnapshot returns a snapshot without what the page does not show.
func NewSnapshot(c contract.Campaign, draw contract.Draw, at time.Time) Snapshot {
	c.Rules, draw.Rules = nil, nil
	c.State = draw.State // which was read first
	return Snapshot{Campaign: c, Draw: draw, At: at}
}

// Add adds the next position.
func (s *Snapshot) Add(state string, isWon bool) { s.States = append(s.States, stateOf(state, isWon)) }

// watched is a campaign that somebody watches, as it was at one time. All who watch it share the files; each is made
// when somebody first wants it.
type watched struct {
	of         Snapshot
	name       *file
	page, live map[string]func() (*file, error) // by language
	bytes      int                              // about, of all files
}

const (
	watchedAge = 2 * time.Second
	// A cache in front of the api keeps a page for as long; a browser asks again whenever it wants to.
	watchedKept = "public, max-age=0, s-maxage=2"
	mostWinners = 1000 // and so many groups of prizes
	mostLayers  = 100
	mostListed  = 20
)

func (p *pages) openLive() {
	bounds := readcache.Settings{MaxAge: watchedAge, Pause: time.Second, Timeout: 10 * time.Second, MaxEntries: 10_000, MaxBytes: 64 << 20}
	p.live = readcache.New(bounds, func(ctx context.Context, id uuid.UUID) (*watched, error) {
		found, err := p.Read(ctx, id)
		if err != nil {
			return nil, err
		}
		before, _ := p.live.Last(id)
		return p.watch(found, before)
	}, func(w *watched) int { return w.bytes })
	p.home = readcache.New(bounds, func(ctx context.Context, _ struct{}) (*file, error) {
		list, err := p.List(ctx, mostListed)
		body, failed := p.render(english, "home", layout{Title: "Triprize", Data: fiber.Map{"Campaigns": list, "Unread": err != nil}})
		return p.file(fiber.MIMETextHTMLCharsetUTF8, plainPolicy, body), failed // the page is of use without the list
	}, func(*file) int { return 1 })
}

// watch makes the files of a snapshot. Those of the one before are used again if what they show is the same; nil: there is none.
func (p *pages) watch(found Snapshot, before *watched) (*watched, error) {
	policy := livePolicy + cmp.Or(strings.Join(found.Campaign.EmbedOrigins, " "), "'none'") // the contract has checked them
	w := &watched{of: found, page: make(map[string]func() (*file, error)), live: make(map[string]func() (*file, error))}
	made := func(contentType string, body []byte) *file {
		a := p.file(contentType, policy, body)
		a.kept = watchedKept
		return a
	}
	name, _ := json.Marshal(map[string]string{"name": found.Campaign.Name}) // cannot fail
	w.name = made(fiber.MIMEApplicationJSON, name)
	isSame := before != nil && before.of.showsAs(found)
	shown := sync.OnceValue(func() view { return viewOf(found) })
	for _, language := range languages {
		w.live[language] = sync.OnceValues(func() (*file, error) {
			body, err := p.execute(language, "campaign", "live", shown())
			return made(fiber.MIMETextHTMLCharsetUTF8, body), err
		})
		if isSame {
			w.live[language] = before.live[language]
		}
		w.page[language] = sync.OnceValues(func() (*file, error) {
			live, err := w.live[language]()
			if err != nil {
				return nil, err
			}
			body, err := p.render(language, "campaign", layout{Title: found.Campaign.Name, InFrame: true, Path: "/c/" + found.Campaign.ID.String(), Live: template.HTML(live.plain()), Data: found}) //nolint:gosec // a template has written it
			return made(fiber.MIMETextHTMLCharsetUTF8, body), err
		})
	}
	live, err := w.live[english]()
	w.bytes = 3*len(languages)*len(live.plain()) + 16*len(found.States) + 128*(len(found.Draw.Winners)+len(found.Campaign.Layers)) // as page and part, and packed; its data
	return w, err
}

// showsAs reports whether two snapshots look the same. Their states are compared, and not versions: names, pauses and
// the steps of a draw have others than the board.
func (s Snapshot) showsAs(other Snapshot) bool {
	isLater := phaseOf(s.Campaign, s.At) == phaseOf(other.Campaign, other.At) && s.beginsLater() == other.beginsLater()
	s.At = other.At
	return isLater && reflect.DeepEqual(s, other)
}

func (s Snapshot) beginsLater() bool {
	return s.Campaign.SaleStartsAt != nil && s.Campaign.SaleStartsAt.After(s.At)
}

// livePolicy is for the page of a campaign; the origins whose pages can frame it follow.
const livePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors "

// part registers a path at which a file of a campaign is. A campaign that nobody has asked for before costs a read, so
// that is charged to who asks; those that are watched are read for all.
func (p *pages) part(r fiber.Router, path string, part func(c *fiber.Ctx, w *watched) (*file, error), refuse func(*fiber.Ctx, error) error) {
	r.Get(path, func(c *fiber.Ctx) error {
		id, err := uuid.Parse(c.Params("campaign"))
		if err != nil || len(c.Params("campaign")) != len(id.String()) {
			return refuse(c, fault.New(fault.NotFound, "there is no such page"))
		}
		if _, isWatched := p.live.Last(id); !isWatched {
			err = p.Charge(c)
		}
		var found readcache.Copy[*watched]
		if err == nil {
			found, err = p.live.Get(context.Background(), id, nil) // its reads have a timeout
		}
		var sent *file
		if err == nil {
			sent, err = part(c, found.Value)
		}
		if err == nil {
			err = sent.send(c)
		}
		if err != nil {
			isGone := fault.CodeOf(err) == fault.NotFound
			if err = refuse(c, err); isGone { // it may have been closed: a cache in front replaces its copy
				if _, isWatched := p.live.Last(id); isWatched { // a read for the next who ask may be under way
					p.live.Forget(id)
				}
				c.Set(fiber.HeaderCacheControl, watchedKept)
			}
		}
		return err
	})
}

func (p *pages) mountLive(r fiber.Router) {
	p.openLive()
	r.Get("/", func(c *fiber.Ctx) error {
		found, err := p.home.Get(context.Background(), struct{}{}, nil)
		if err != nil {
			return err
		}
		return found.Value.send(c)
	})
	asIs := func(c *fiber.Ctx, err error) error { return c.App().ErrorHandler(c, err) }
	p.part(r, "/c/:campaign", func(c *fiber.Ctx, w *watched) (*file, error) { return w.page[languageOf(c)]() }, p.refuse)
	p.part(r, "/c/:campaign/live", func(c *fiber.Ctx, w *watched) (*file, error) { return w.live[languageOf(c)]() }, asIs)
	p.part(r, "/c/:campaign/name", func(_ *fiber.Ctx, w *watched) (*file, error) { return w.name, nil }, asIs) // for the page that checks its draw
}

// refuse answers with an error as a page, which may stand in a frame of anybody.
func (p *pages) refuse(c *fiber.Ctx, err error) error {
	language, reason := languageOf(c), "unavailable"
	if fault.CodeOf(err) == fault.NotFound {
		reason = "gone"
	}
	body, failed := p.render(language, "refused", layout{Title: p.messages[language][reason], InFrame: true})
	if err := errors.Join(failed, c.App().ErrorHandler(c, err)); err != nil { // it says the status
		return err
	}
	c.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	c.Set(fiber.HeaderContentSecurityPolicy, strings.TrimSuffix(plainPolicy, "; frame-ancestors 'none'"))
	return c.Send(body)
}

// view is what the template of the live page needs.
type view struct {
	Snapshot
	Phase   string // what a campaign's state means at this time
	Final   bool   // nothing changes any more
	Unsold  bool   // why it was cancelled
	Trust   string // what the draw depends on: beacon, chain or operator
	Free    string // what positions are that nobody has
	Picture template.HTML
	Legend  []legend
	Winners []contract.Winner
	More    int // winners that are not listed
	Begins  bool
	Layers  int // that are not listed
}

// legend is a state of the picture, the message that says it, and how many positions have it.
type legend struct {
	State, Label string
	Count        int
}

func viewOf(s Snapshot) view {
	v := view{Snapshot: s, Phase: phaseOf(s.Campaign, s.At), Trust: trustOf(s), Free: freeOf(s.Campaign), Winners: s.Draw.Winners, Begins: s.beginsLater()}
	inUse := s.Campaign.Positions.Sold + s.Campaign.Positions.Reserved // a cancellation releases them in batches
	v.Final = s.Campaign.State == contract.CampaignStateCompleted || s.Campaign.State == contract.CampaignStateCancelled && inUse == 0
	v.Unsold = s.Campaign.CancelReason != nil && *s.Campaign.CancelReason == lifecycle.UnsoldReason
	v.Picture, v.Legend = pictureOf(s)
	if v.More = len(v.Winners) - mostWinners; v.More > 0 {
		v.Winners, v.Draw.Winners = v.Winners[:mostWinners:mostWinners], nil
	}
	left := mostWinners
	v.Layers = max(0, len(s.Campaign.Layers)-mostLayers)
	v.Campaign.Layers = append([]contract.Layer(nil), s.Campaign.Layers[:min(len(s.Campaign.Layers), mostLayers)]...)
	for i, l := range v.Campaign.Layers {
		n := len(l.Prizes)
		if n > left {
			v.Campaign.Layers[i].Prizes = append(l.Prizes[:left:left], contract.PrizeGroup{Name: "…", Count: 1})
		}
		left = max(0, left-n)
	}
	return v
}

// trustOf says on what the draw depends. The maker of a chain that is not the public one may know its rounds.
func trustOf(s Snapshot) string {
	quicknet := beacon.Quicknet().Hash()
	switch chain := s.Draw.Chain; {
	case !s.Campaign.Policies.Beacon:
		return "operator"
	case chain != nil && chain.ChainHash != fmt.Sprintf("%x", quicknet):
		return "chain"
	default:
		return "beacon"
	}
}

func phaseOf(c contract.Campaign, now time.Time) string {
	switch {
	case c.State != contract.CampaignStateActive:
		return string(c.State)
	case c.SaleEndsAt != nil && !now.Before(*c.SaleEndsAt):
		return "ended"
	case c.Paused:
		return "paused"
	case c.SaleStartsAt != nil && now.Before(*c.SaleStartsAt):
		return "upcoming"
	default:
		return "on_sale"
	}
}
