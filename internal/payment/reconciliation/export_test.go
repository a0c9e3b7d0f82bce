package reconciliation

// What tests use.
var (
	ClaimDay = claimDay
	Store    = store
	End      = claimedDay.end
)
