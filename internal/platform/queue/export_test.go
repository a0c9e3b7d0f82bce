package queue

// Age lets the time pass after which a client tells Redis anew which queues exist.
func (c *Client) Age() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewed = c.renewed.Add(-registerEvery)
}
