package wallet

// Folded is how many events Open has added up.
func (b *Book) Folded() int64 { return b.folded }
