package webhook

import "time"

// What tests use.
var (
	AddSecret     = addSecret
	StorePayloads = storePayloads
	Message       = message
	Patch         = patch
	Enable        = enable
	Disable       = disable
	Delete        = remove
	ReplaySpan    = replaySpan
	Schedule      = schedule
)

const (
	MaxPayloadBytes  = maxPayloadBytes
	MaxSecrets       = maxSecrets
	MaxChallenges    = maxChallenges
	ReplaysPerSecond = replaysPerSecond
)

// LastHour is a span around now.
func LastHour() Span { return Span{From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour)} }
