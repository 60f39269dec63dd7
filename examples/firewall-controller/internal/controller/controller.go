// Package controller is the reconcile loop: the program itself first, then the rest
// of the work, then the status.
package controller

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/metal-stack/selfreconcile/examples/firewall-controller/internal/firewall"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// Config is what a [Controller] needs. All fields are required.
type Config struct {
	Store   firewall.Store
	Version string // of this process

	// Updater returns what replaces the program. An error does not stop the
	// controller: it is asked again at the next reconcile, until it has one.
	Updater func() (*selfupdate.Updater, error)

	// Release returns the release of that version at the URL, without a request.
	Release func(version, url string) (selfupdate.Release, error)

	Interval time.Duration // between two reconciles, unless the spec changes
	Patience time.Duration // how long the rest of the work waits for an update
	Log      *slog.Logger
}

// Controller brings one firewall to its spec, again and again.
type Controller struct {
	cfg        Config
	updater    *selfupdate.Updater
	spec       *firewall.Spec // the last good one; nil until there is one
	flight     *flight        // the update that is under way; nil when there is none
	reconciles int
	rules      int                  // in force
	said       map[notice]time.Time // events of this process
	found      *selfupdate.Status   // what was known of the program at the start
}

// New returns a Controller that has not done anything yet.
func New(cfg Config) *Controller {
	return &Controller{cfg: cfg, said: map[notice]time.Time{}}
}

// Run reconciles until ctx ends, and then returns false, or until another program
// is at the target, and then returns true: the process has to make way for that.
// Nothing of it is running afterwards.
func (c *Controller) Run(ctx context.Context) (leave bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		c.land()
	}()
	changes := c.cfg.Store.Changes(ctx) // before the first look at the spec: no change is missed
	c.hello()
	tick := time.NewTicker(c.cfg.Interval)
	defer tick.Stop()
	for {
		if c.reconcile(ctx) {
			return true
		}
		tick.Reset(c.cfg.Interval) // whatever the reason for this one was
		select {
		case <-ctx.Done():
			return false
		case <-changes:
			c.cfg.Log.Info("the spec has changed")
		case <-c.flight.landed():
		case <-tick.C:
		}
	}
}

// hello logs which version this is and where the program was before.
func (c *Controller) hello() {
	log := c.cfg.Log.With("version", c.cfg.Version)
	u, err := c.ready()
	if err != nil {
		log.Warn("starting; no update is possible", "error", err)
		return
	}
	// A later stage of the module counts this start here, and goes back after too many.
	st, err := u.Status()
	if err != nil {
		log.Warn("starting; the record can't be read", "target", u.Target(), "error", err)
		return
	}
	c.found = &st
	if len(st.Previous) > 0 {
		log = log.With("previous", previous(st))
	}
	if l := last(st); l != "" {
		log = log.With("last", l)
	}
	log.Info("starting", "target", st.Target)
}

// reconcile brings the firewall to its spec, the program first. It reports whether
// the process has to make way for another program. A failed update stops nothing.
func (c *Controller) reconcile(ctx context.Context) (leave bool) {
	c.reconciles++
	specErr := c.look(ctx)
	up := c.self(ctx)
	if ctx.Err() != nil {
		return false
	}
	if up.leave {
		c.report(ctx, up, specErr, nil)
		return true
	}
	workErr := c.work() // whatever became of the update
	c.report(ctx, up, specErr, workErr)
	return false
}

// look reads the spec. One that can't be used leaves the old one in force.
func (c *Controller) look(ctx context.Context) error {
	spec, err := c.cfg.Store.Spec(ctx)
	if err != nil {
		return err
	}
	c.spec = &spec
	return nil
}

// work is the rest of the work, which an update must not stop.
func (c *Controller) work() error {
	if c.spec == nil {
		return nil
	}
	n, err := applyRules(*c.spec)
	if err != nil {
		return err // the rules that were in force still are
	}
	if n != c.rules {
		c.cfg.Log.Info("rules are in force", "rules", n)
	}
	c.rules = n
	return nil
}

// ready returns the updater, or why there is none.
func (c *Controller) ready() (*selfupdate.Updater, error) {
	if c.updater == nil {
		u, err := c.cfg.Updater()
		if err != nil {
			return nil, err
		}
		c.updater = u
	}
	return c.updater, nil
}

func (c *Controller) desired() wanted {
	if c.spec == nil {
		return wanted{}
	}
	return wanted{version: c.spec.ControllerVersion, url: c.spec.ControllerURL}
}

var errNoURL = errors.New("spec.controllerVersion without spec.controllerURL: nowhere to get it from")
