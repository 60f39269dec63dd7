//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	stepTimeout = 60 * time.Second // far more than a step takes, for a busy machine
	look        = 25 * time.Millisecond
)

// step is one part of the story. It returns an error when what it announces does
// not happen.
type step struct {
	title string
	do    func(ctx context.Context) error
}

func (d *demo) step(ctx context.Context, n int, s step) error {
	d.screen.step(n, s.title)
	timed, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err := s.do(timed)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted in step %d", n)
	}
	d.say("")
	d.say("✗ step %d did not happen: %v", n, err)
	d.say("the controller's last lines:")
	for _, line := range d.service.tail() {
		d.print("    ", line)
	}
	return fmt.Errorf("step %d (%s) did not happen", n, s.title)
}

// eventually asks until cond has nothing to object, and says what it objected to
// last when the time is over.
func eventually(ctx context.Context, what string, cond func() error) error {
	for {
		err := cond()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = fmt.Errorf("%w, still after %v", err, stepTimeout)
			}
			return fmt.Errorf("%s: %w", what, err)
		case <-time.After(look):
		}
	}
}
