package inventory

// Need is what the tests of the search ask for.
type Need = need

// The parts of FindStock.
var (
	FindFree   = findFree
	CountGone  = countGone
	FindRuns   = findRuns
	RunsWanted = runsWanted
)
