// Package drand asks relays for the rounds of a chain of public randomness (package
// beacon), over drand's HTTP API.
//
// A relay is not trusted. The signature of every round is verified here with the public
// key of the chain, so a relay can keep a round from us and cannot make one up. What does
// not verify is a lie: it is counted (triprize_beacon_answers_total{outcome="lie"}), logged
// once in a while, and the next relay is asked. Nothing replaces a verified round.
//
// A question begins with a relay that is chosen at random. When it has no answer to give,
// or none after a while, the next is asked beside it; the first verified round ends all.
// Whoever asks for the same round at the same time shares one question.
//
// Bounds: the time of each relay (beacon.timeout), the bytes of an answer, and the questions
// to one relay that are under way at once. Redirects are not followed.
package drand
