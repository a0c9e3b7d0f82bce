package lock

// Extend makes the next extension at once, on the caller's goroutine.
func (h *Held) Extend() { h.extend() }
