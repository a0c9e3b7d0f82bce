package drand

import "time"

// SetPatience sets after which time the next relay is asked, too.
func (c *Client) SetPatience(d time.Duration) { c.patience = d }

// AtOnce is how many questions to one relay may be under way.
const AtOnce = atOnce
