package refunds

// What tests use.
var (
	Write        = write
	QueueResolve = queueResolve
)

// MostResolved is how many refunds one request resolves at most.
const MostResolved = mostResolved
