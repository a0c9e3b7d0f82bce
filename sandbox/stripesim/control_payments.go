package stripesim

import (
	"errors"
	"fmt"
)

// SetAway lets the sandbox be away: every request of the API is answered with 503, or
// its connection closed. The controls stay.
func (s *Server) SetAway(a Away) error { return s.faults.setAway(a) }

// alter makes a change of one object and waits until it is on disk.
func (s *Server) alter(do func(*change) error) (err error) {
	seq := s.mutate("", "", "", func(c *change) { err = do(c) })
	return errors.Join(err, s.journal.wait(seq))
}

// Finish ends a payment that is processing.
func (s *Server) Finish(intentID string, success bool) error {
	return s.alter(func(c *change) error {
		i := c.intents.by[intentID]
		switch {
		case i == nil:
			return errUnknown
		case i.Status != processing:
			return fmt.Errorf("the payment is not processing but %s", i.Status)
		case success:
			c.finish(i, nil)
		default:
			c.finish(i, &attemptFailed)
		}
		return nil
	})
}

// Authenticate does what the page of an action does.
func (s *Server) Authenticate(intentID string, success bool) error {
	return s.alter(func(c *change) error {
		i := c.intents.by[intentID]
		switch {
		case i == nil:
			return errUnknown
		case i.Status != requiresAction:
			return fmt.Errorf("the payment needs no action: it is %s", i.Status)
		}
		c.authenticated(i, success)
		return nil
	})
}

// FinishRefund moves a refund to succeeded, failed or canceled. One that has succeeded
// can still fail.
func (s *Server) FinishRefund(id, status string) error {
	return s.alter(func(c *change) error {
		r := c.refunds.by[id]
		switch {
		case r == nil:
			return errUnknown
		case r.Void || r.Status == failed || r.Status == canceled || (r.Status == succeeded && status != failed):
			return fmt.Errorf("the refund cannot become %s: it is %s", status, r.Status)
		}
		c.settleRefund(r, status)
		return nil
	})
}

// Dispute begins a dispute about a captured charge now, and returns its id.
func (s *Server) Dispute(chargeID string) (id string, err error) {
	err = s.alter(func(c *change) error {
		ch := c.charges.by[chargeID]
		switch {
		case ch == nil:
			return errUnknown
		case !ch.Captured || ch.Dispute != "" || ch.Refunded == ch.Received:
			return errors.New("the charge has nothing left that can be disputed")
		}
		id = c.openDispute(ch).ID
		return nil
	})
	return id, err
}

// EscalateDispute makes an inquiry a dispute: the bank takes the money.
func (s *Server) EscalateDispute(id string) error {
	return s.alter(func(c *change) error {
		d := c.disputes.by[id]
		if d == nil {
			return errUnknown
		}
		if problem := c.escalateDispute(d); problem != nil {
			return errors.New(problem.message)
		}
		return nil
	})
}

// CloseDispute ends a dispute: won by the shop, or lost.
func (s *Server) CloseDispute(id string, won bool) error {
	return s.alter(func(c *change) error {
		d := c.disputes.by[id]
		if d == nil {
			return errUnknown
		}
		if problem := c.closeDispute(d, won); problem != nil {
			return errors.New(problem.message)
		}
		return nil
	})
}

// Resend sends an event once more.
func (s *Server) Resend(id string) error {
	return s.alter(func(c *change) error {
		e := c.events.by[id]
		if e == nil {
			return errUnknown
		}
		if c.server.settings.WebhookURL == "" {
			return errors.New("there is no webhook URL")
		}
		e.Sendings++
		e.Next = c.now.UnixMilli()
		c.touch(e)
		c.send = append(c.send, shipment{at: e.Next, events: []string{id}})
		return nil
	})
}
