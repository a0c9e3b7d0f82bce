package refunds

// What tests use.
var (
	Write        = write
	QueueResolve = queueResolve
)
