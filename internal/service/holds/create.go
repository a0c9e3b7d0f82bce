package holds

import (
	"time"

	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/store/inventory"
)

// decideOne makes a hold, or returns why the request is refused.
func (s *Service) decideOne(f *facts, stock *inventory.Stock, r Request) (inventory.NewHold, error) {
	if err := f.check(r, s.settings); err != nil {
		return inventory.NewHold{}, err
	}
	picked, err := stock.Select(r.Job.CampaignID, r.Selection, "", func(p shape.Position) bool { _, wait := f.again(r, p); return wait })
	if err != nil {
		return inventory.NewHold{}, stock.NameOwn(err, r.Job.CampaignID, r.Job.Client, r.Job.UserID, r.Selection)
	}
	f.hold(r, len(picked))
	made := inventory.NewHold{Picked: picked, Hold: inventory.Hold{ID: uuidv7.New(), CampaignID: r.Job.CampaignID, UserID: r.Job.UserID,
		Currency: f.campaigns[r.Job.CampaignID].Currency, Client: r.Job.Client, Metadata: r.Metadata, State: inventory.HoldActive, CreatedAt: f.now, ExpiresAt: f.now.Add(r.TTL), EndsBy: f.endsBy(r, picked)}}
	if end := f.campaigns[r.Job.CampaignID].DrawsAt; end != nil { // nothing is held when it is drawn
		made.ExpiresAt, made.EndsBy = earlier(made.ExpiresAt, *end), earlier(made.EndsBy, *end)
	}
	stock.Keep(picked, inventory.HeldBy(made.Client, made.UserID, made.ID))
	form := f.campaigns[r.Job.CampaignID].Shape
	for _, p := range picked {
		made.Positions = append(made.Positions, inventory.HoldPosition{Place: form.Place(p.Position), Price: p.Price})
	}
	return made, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
