package httpapi_test

import (
	"slices"
	"testing"

	"triprize/internal/testkit/fleet"
)

func TestMain(m *testing.M) { fleet.Main(m) }

// everyday are the settings of the systems that tests share: tokens are trusted, streams
// are lively, and what has a bound over all tests together has none.
var everyday = slices.Concat(fleet.Trusting.Env, []string{fleet.Lively, "TRIPRIZE_STREAMS_INTERVAL=20ms",
	"TRIPRIZE_ACCEPT_LONGEST_WAIT=24h", "TRIPRIZE_LIMITS_ADDRESS_RATE=0"})

// The systems that tests share.
var (
	quiet      = fleet.Options{APIs: 2, Workers: -1, Schedulers: -1, Env: everyday} // what is accepted stays queued
	cardsTaken = fleet.Options{Workers: -1, Schedulers: -1, Env: slices.Concat(everyday, takingCards)}
	busy       = fleet.Options{APIs: 2, Workers: 2, Env: everyday}
)

// withUsers gives a test an api of its own, where tokens are those of the users of its app.
func withUsers(s *fleet.System) *fleet.System {
	return s.With("TRIPRIZE_TOKENS_CLIENT=" + s.Client("shop"))
}
