// Package drand asks relays for rounds of a chain (package beacon), and verifies each.
//
// A relay is not trusted. It can keep a round from us and cannot invent one. A round that
// does not verify is counted (triprize_beacon_answers_total{outcome="lie"}) and logged,
// and the next relay is asked.
//
// A question begins with a random relay. If it fails, or is slow, the next one is asked
// beside it; the first verified round ends the question. Callers of the same round share
// one question.
//
// Bounds: the time of each relay (beacon.timeout), the bytes of an answer, and the
// questions to one relay. Redirects are not followed.
package drand
