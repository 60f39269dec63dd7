package fetch

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pace is the time that a body may spend waiting for the network, whatever the
// number of its connections: a server that breaks each one before its grace
// minute is over would otherwise never be too slow. The bytes that are delivered
// earn it back at the minimum rate, up to where it started, so that a fast
// beginning pays for nothing later. The first answer is not on this account:
// the retries bound it.
type pace struct {
	left, most time.Duration
	minRate    int64
}

// newPace leaves time for as many stalls in a row as there are resumes and for
// one Retry-After.
func (l limits) newPace() pace {
	most := time.Duration(l.resumes+1)*max(l.grace, l.stall) + l.maxWait
	return pace{left: most, most: most, minRate: l.minRate}
}

// spend accounts for a wait that brought n bytes.
func (p *pace) spend(d time.Duration, n int) error {
	if p.minRate <= 0 {
		return nil
	}
	earned := time.Duration(float64(n) / float64(p.minRate) * float64(time.Second))
	if p.left = min(p.left+earned, p.most) - d; p.left < 0 {
		return p.tooSlow()
	}
	return nil
}

func (p *pace) tooSlow() error {
	return fmt.Errorf("%w: less than %d bytes a second over several connections", errSlow, p.minRate)
}

// timed runs f, which waits for the network and delivers nothing, and ends the
// body when the time runs out meanwhile.
func (b *body) timed(f func() error) error {
	if b.pace.minRate > 0 {
		slow := b.pace.tooSlow()
		t := time.AfterFunc(b.pace.left, func() { b.cancel(slow) })
		defer t.Stop()
	}
	start := time.Now()
	err := f()
	if slow := b.pace.spend(time.Since(start), 0); slow != nil {
		return fmt.Errorf("%s: %w", b.url, slow)
	}
	return err
}

// stopped is why the body's context has ended, nil when it has not.
func (b *body) stopped() error {
	if cause := context.Cause(b.ctx); errors.Is(cause, errSlow) {
		return cause
	}
	return b.ctx.Err() // not the cause: it is the caller's own
}
