package wallet

// Folded is how many events Open has added up.
func (u *UnitOfWork) Folded() int64 { return u.folded }
