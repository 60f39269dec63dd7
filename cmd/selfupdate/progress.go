package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress is one line on a terminal, rewritten at most ten times a second. A nil
// progress shows nothing. It is not safe for concurrent use.
type progress struct {
	w           io.Writer
	now         func() time.Time
	start, last time.Time
	done, total int64
	length      int // of the line that is shown
}

const progressInterval = 100 * time.Millisecond

// progress returns nil where nobody would see it.
func (e *env) progress() *progress {
	if !e.terminal || e.quiet || e.verbose {
		return nil
	}
	return &progress{w: e.stderr, now: time.Now}
}

// update shows how many bytes are done; total is -1 when it is not known.
func (p *progress) update(done, total int64) {
	if p == nil {
		return
	}
	now := p.now()
	if p.start.IsZero() {
		p.start = now
	}
	p.done, p.total = done, total
	if !p.last.IsZero() && now.Sub(p.last) < progressInterval {
		return
	}
	p.last = now
	p.draw(p.line(now))
}

// finish shows the last state and ends the line, if there is one.
func (p *progress) finish() {
	if p == nil || p.start.IsZero() {
		return
	}
	now := p.now()
	p.draw(p.line(now) + fmt.Sprintf(" in %v", now.Sub(p.start).Round(100*time.Millisecond)))
	_, _ = io.WriteString(p.w, "\n")
	p.start, p.last, p.length = time.Time{}, time.Time{}, 0
}

func (p *progress) draw(line string) {
	pad := max(p.length-len(line), 0)
	_, _ = io.WriteString(p.w, "\r"+line+strings.Repeat(" ", pad))
	p.length = len(line)
}

func (p *progress) line(now time.Time) string {
	s := size(p.done)
	if p.total > 0 {
		s += fmt.Sprintf(" of %s, %d %%", size(p.total), min(p.done*100/p.total, 100))
	}
	if d := now.Sub(p.start); d > 0 {
		s += fmt.Sprintf(", %s/s", size(int64(float64(p.done)/d.Seconds())))
	}
	return s
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n < 0:
		return "unknown size"
	case n < 10<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 10<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
