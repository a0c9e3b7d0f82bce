package apikey

// Waiting returns how many keys wait for a look-up.
func (v *Verifier) Waiting() int { return v.loads.Pending() }
