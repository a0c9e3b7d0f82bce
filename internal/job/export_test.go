package job

// What the sweep lost-jobs is made of.
var (
	FindOverdue = findOverdue
	MarkSeen    = markSeen
	Reissue     = reissueMessages
)

// Walk is a walk through overdue messages.
type Walk = overdueWalk
