// Package hold owns holds: positions that are kept for one user for a while,
// until the user buys them, gives them back or lets them go.
//
//	active ─┬─▶ used      a purchase took all of it
//	        ├─▶ released  its owner gave it back
//	        └─▶ expired   its time was over
//
// A hold is over at its deadline by the database's clock, whether or not
// somebody has noticed: Get says expired, and every transaction that wants
// positions of a campaign first reads which holds are due (DueSQL) and ends them,
// together with the positions they kept (package board). What is due is read
// once, after the campaign is locked, and everything else in that transaction
// goes by it: so a purchase from a hold in its last millisecond wins wholly or
// fails wholly.
//
// Whoever changes a hold has its campaign locked, and names the state it expects.
package hold
