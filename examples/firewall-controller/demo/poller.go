//go:build unix

package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const between = 10 * time.Millisecond

// poller runs the program file over and over, from the first step to the last: a
// moment in which the path names no program, or half of one, is a failure.
type poller struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	runs     int
	failures []string
	answers  []string // each time that it was another one than before
}

func poll(path string) *poller {
	ctx, cancel := context.WithCancel(context.Background())
	p := &poller{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		for ctx.Err() == nil {
			p.once(path)
			time.Sleep(between)
		}
	}()
	return p
}

func (p *poller) once(path string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "-v").CombinedOutput()
	answer := strings.TrimSpace(string(out))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs++
	if err != nil || answer != v0 && answer != v1 && answer != v2 {
		p.failures = append(p.failures, fmt.Sprintf("%v: %q", err, answer))
		return
	}
	if n := len(p.answers); n == 0 || p.answers[n-1] != answer {
		p.answers = append(p.answers, answer)
	}
}

func (p *poller) stop() {
	p.cancel()
	<-p.done
}

func (p *poller) result() (runs int, answers, failures []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs, p.answers, p.failures
}
