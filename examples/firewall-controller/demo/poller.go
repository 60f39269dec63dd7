//go:build unix

package main

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

const between = 10 * time.Millisecond

// poller runs the program file over and over, from the first step to the last: a
// moment in which the path names no program, or half of one, is a failure. What a
// whole program does is another matter.
type poller struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	runs     int
	failures []string // the path named nothing that can be executed
	crashes  int      // what it named ended badly or said nonsense: its own fault
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
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit):
		p.failures = append(p.failures, err.Error())
		return
	case err != nil, !known(answer):
		p.crashes++
		return
	}
	if n := len(p.answers); n == 0 || p.answers[n-1] != answer {
		p.answers = append(p.answers, answer)
	}
}

func known(version string) bool {
	return slices.ContainsFunc(kinds(), func(k kind) bool { return k.version == version })
}

func (p *poller) stop() {
	p.cancel()
	<-p.done
}

func (p *poller) result() (runs, crashes int, answers, failures []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs, p.crashes, p.answers, p.failures
}
