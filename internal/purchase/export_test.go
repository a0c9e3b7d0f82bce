package purchase

// SoldLinesBy is SoldLines with pages of a size.
var SoldLinesBy = soldLines
