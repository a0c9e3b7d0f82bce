package httpapi

import "time"

// pace is how fast jobs become final, and how many may be unfinished of all clients but one
// so that they do not make the one wait.
//
// That number is found by trial, as TCP Vegas and BBR do: while jobs take about as long as
// when few are unfinished, there may be more of them; when they take longer, they wait for
// each other, and there may be fewer. From time to time few may be unfinished, to learn how
// long a job then takes. A rate would not do: what is measured is then what was let in.
type pace struct {
	last      time.Time // when the last jobs became final
	begun     time.Time // of the interval
	n         int       // jobs that became final in the interval
	followed  int       // of these, those of this process
	sum       time.Duration
	waitedFor bool // somebody waited in the interval

	perSecond float64       // in the interval before
	quiet     time.Duration // how long a job takes when few are unfinished; 0: not known
	window    float64
	intervals int
	isProbe   bool // few may be unfinished in this interval
}

const (
	paceInterval = 250 * time.Millisecond
	// probeEvery is how many intervals there are for one with few unfinished jobs.
	probeEvery = 40
	// queueing is how much longer than a quiet one a job may take because of others.
	queueing = 10 * time.Millisecond
	// leastBeside and mostBeside bound the window: so many jobs that batches are still worth
	// it, and no more than of a client that is alone.
	leastBeside = 16
	mostBeside  = leastAlone
	// stalledAfter is how long no job has become final when the workers count as away. Jobs
	// are then accepted without a window: they wait in Postgres.
	stalledAfter = 500 * time.Millisecond
)

// add counts jobs that have become final. waitedFor tells whether others wait to be let in.
func (p *pace) add(now time.Time, n int, waitedFor bool) {
	if elapsed := now.Sub(p.begun); elapsed >= paceInterval {
		p.turn(elapsed)
		p.begun, p.n, p.followed, p.sum, p.waitedFor = now, 0, 0, 0, false
	}
	p.n += n
	p.waitedFor = p.waitedFor || waitedFor
	p.last = now
}

// took notes how long a job of this process took, or has counted.
func (p *pace) took(d time.Duration) {
	p.followed++
	p.sum += d
}

// turn ends an interval.
func (p *pace) turn(elapsed time.Duration) {
	p.perSecond = float64(p.n) / elapsed.Seconds()
	wasProbe := p.isProbe
	p.intervals++
	p.isProbe = p.intervals%probeEvery == 0
	p.window = max(p.window, leastBeside)
	if p.followed == 0 {
		return
	}
	mean := p.sum / time.Duration(p.followed)
	if mean > unfinishedFor*3/4 { // most were not final as long as they counted: nobody knows how long they take
		p.window = max(leastBeside, p.window/2)
		return
	}
	if wasProbe || p.quiet == 0 || mean < p.quiet {
		p.quiet = mean
	}
	switch {
	case wasProbe:
	case mean > p.quiet+2*queueing:
		p.window = max(leastBeside, p.window/2)
	case mean > p.quiet+queueing:
		p.window = max(leastBeside, p.window*3/4)
	case p.waitedFor:
		p.window = min(mostBeside, p.window*3/2)
	}
}

// beside is how many jobs may be unfinished of all clients but one.
func (p *pace) beside() int {
	if p.isProbe {
		return max(leastBeside, int(p.window)/4)
	}
	return max(leastBeside, int(p.window))
}

func (p *pace) isStalled(now time.Time) bool { return now.Sub(p.last) > stalledAfter }
