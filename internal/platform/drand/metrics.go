package drand

import "github.com/prometheus/client_golang/prometheus"

// outcome is what came of one question to one relay.
type outcome string

const (
	outcomeOK         outcome = "ok"
	outcomeNotYet     outcome = "not-yet"    // the relay does not have the round
	outcomeLie        outcome = "lie"        // what it gave out does not verify
	outcomeUnreadable outcome = "unreadable" // no answer of a relay: a page, too many bytes
	outcomeRefused    outcome = "refused"    // another status
	outcomeAway       outcome = "away"       // no answer in time, or no connection
)

var outcomes = []outcome{outcomeOK, outcomeNotYet, outcomeLie, outcomeUnreadable, outcomeRefused, outcomeAway}

func newMetrics(registry prometheus.Registerer) *prometheus.CounterVec {
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "triprize_beacon_answers_total",
		Help: "Answers of relays of the beacon, by host and outcome: ok, not-yet (it does not have the round), lie (it does not verify), unreadable, refused, away. A lie is for a person to look at.",
	}, []string{"relay", "outcome"})
	if registry != nil {
		registry.MustRegister(answers)
	}
	return answers
}
