package fetch

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	maxRedirects = 5
	maxAPIBody   = 32 << 20 // of an answer through HTTPClient: a page of 100 releases with all their assets
	maxResumes   = 100      // of one body, however much each brings
	freeSkips    = 1 << 20  // bytes of a body that may come again for nothing; beyond that twice its size
	smallBody    = 64 << 10 // read at once
	readBuffer   = 64 << 10 // of the transport; a caller's larger buffer bypasses it
)

// limits are all bounds of a Client in one place.
type limits struct {
	tls, header time.Duration // of our own transport
	answer      time.Duration // from the start of a hop (30 s to connect, 15 s for TLS) to its header, with any transport

	stall   time.Duration // waiting for a byte of the body
	minRate int64         // bytes a second over each grace period of waiting; 0 none
	grace   time.Duration

	retries    int
	backoffMin time.Duration
	backoffMax time.Duration
	maxWait    time.Duration

	resumes  int   // in a row without progress
	progress int64 // bytes that count as progress: a server that drips and hangs up comes to an end
}

func (o Options) limits() limits {
	l := limits{
		tls:        15 * time.Second,
		header:     30 * time.Second,
		stall:      60 * time.Second,
		minRate:    1 << 10,
		grace:      time.Minute,
		retries:    4,
		backoffMin: time.Second,
		backoffMax: 30 * time.Second,
		maxWait:    2 * time.Minute,
		resumes:    5,
		progress:   64 << 10,
	}
	override(&l.stall, o.Stall)
	l.header = min(l.header, l.stall) // whoever does not wait long for a byte does not wait longer for the first
	l.answer = 45*time.Second + l.header
	override(&l.backoffMin, o.Backoff)
	override(&l.maxWait, o.MaxWait)
	if o.MinRate != 0 {
		l.minRate = max(o.MinRate, 0)
	}
	if o.Retries != 0 {
		l.retries = max(o.Retries, 0)
	}
	return l
}

func override(d *time.Duration, with time.Duration) {
	if with > 0 {
		*d = with
	}
}

// backoff returns how long to wait after the failed try number n (from 0):
// exponential, capped, and jittered by half, so that a fleet that failed
// together does not come back together.
func (l limits) backoff(n int) time.Duration {
	d := l.backoffMax
	if n < 20 {
		d = min(l.backoffMin<<n, l.backoffMax)
	}
	return d/2 + rand.N(d/2+1)
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return Clean(ctx.Err())
	}
}
