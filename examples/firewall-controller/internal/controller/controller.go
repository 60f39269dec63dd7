// Package controller is the reconcile loop: the program itself first, then the rest
// of the work, then the status; and, at the end of a good one, the word that the
// program works.
package controller

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/metal-stack/selfreconcile/examples/firewall-controller/internal/firewall"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// Config is what a [Controller] needs. All fields are required but the last two.
type Config struct {
	Store   firewall.Store
	Version string // of this process

	// Updater returns what replaces the program. An error does not stop the
	// controller: it is asked again at the next reconcile, until it has one.
	Updater func() (*selfupdate.Updater, error)

	// Trials says that new versions are on trial here, and Start what Updater.Begin
	// said of this one.
	Trials bool
	Start  selfupdate.Start

	// Release returns the release of that version at the URL, without a request.
	Release func(version, url string) (selfupdate.Release, error)

	Interval time.Duration // between two reconciles, unless the spec changes
	Patience time.Duration // how long the rest of the work waits for an update
	Soak     time.Duration // how long a program has to work until it is confirmed
	Log      *slog.Logger

	// Alive is called by the loop itself, every AliveEvery and before each reconcile:
	// it is not when the loop hangs. 0: never.
	Alive      func()
	AliveEvery time.Duration
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
	news       []news               // events that are still to be written
	health     health
	onTrial    bool // the program of this process, and it is not confirmed yet
}

// New returns a Controller that has not done anything yet.
func New(cfg Config) *Controller {
	return &Controller{cfg: cfg, said: map[notice]time.Time{}, health: health{soak: cfg.Soak}, onTrial: cfg.Start.OnTrial}
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
	tick := time.NewTicker(c.pace())
	defer tick.Stop()
	alive := make(<-chan time.Time)
	if c.cfg.AliveEvery > 0 {
		t := time.NewTicker(c.cfg.AliveEvery)
		defer t.Stop()
		alive = t.C
	}
	for {
		c.alive()
		if c.reconcile(ctx) {
			return true
		}
		tick.Reset(c.pace()) // whatever the reason for this one was
		if !c.wait(ctx, changes, tick.C, alive) {
			return false
		}
	}
}

// wait returns when there is a reason to reconcile, or with false at the end of ctx.
func (c *Controller) wait(ctx context.Context, changes <-chan struct{}, tick, alive <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-changes:
			c.cfg.Log.Info("the spec has changed")
		case <-c.flight.landed():
		case <-tick:
		case <-alive:
			c.alive()
			continue
		}
		return true
	}
}

func (c *Controller) alive() {
	if c.cfg.AliveEvery > 0 {
		c.cfg.Alive()
	}
}

// pace is the time to the next reconcile. A program that has not proved itself yet
// is in a hurry: the time of a trial is limited.
func (c *Controller) pace() time.Duration {
	if c.health.proven {
		return c.cfg.Interval
	}
	return min(c.cfg.Interval, unsure)
}

// hello logs which version this is and where the program was before.
func (c *Controller) hello() {
	log := c.cfg.Log.With("version", c.cfg.Version)
	if s := c.cfg.Start; s.OnTrial {
		c.tell(firewall.OnTrial, onTrial(c.cfg.Version, s))
	}
	u, err := c.ready()
	if err != nil {
		log.Warn("starting; no update is possible", "error", err)
		return
	}
	st, err := u.Status()
	if err != nil {
		log.Warn("starting; the record can't be read", "target", u.Target(), "error", err)
		return
	}
	if st.Last != nil && st.Last.Outcome == string(selfupdate.RolledBack) {
		c.tell(firewall.RolledBack, rolledBack(c.cfg.Version, st))
	}
	if p := previous(st); p != "" {
		log = log.With("previous", p)
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
	statusErr := c.report(ctx, up, specErr, workErr)
	// The API could be read and written: that is what a new version must not lose, since
	// without it nobody could send the next one. What the spec makes of the work is no
	// version's fault.
	if c.health.saw(specErr == nil && statusErr == nil, time.Now()) {
		c.confirm(ctx, up, workErr)
	}
	return false
}

// confirm says that this program works. When there is nothing to confirm that costs
// next to nothing, and it is how the record learns that the machine is well.
func (c *Controller) confirm(ctx context.Context, up outcome, workErr error) {
	u, err := c.ready()
	if err != nil || !c.cfg.Trials {
		return
	}
	if err := u.Confirm(ctx); err != nil {
		c.cfg.Log.Warn("the program can't be confirmed", "error", err) // the next reconcile tries again
		return
	}
	if !c.onTrial {
		return
	}
	c.onTrial = false
	c.tell(firewall.Confirmed, c.cfg.Version+" is confirmed: from now on nothing goes back by itself")
	c.sendNews(ctx)
	message := up.message
	if workErr != nil {
		message = join(message, workErr.Error())
	}
	_ = c.setStatus(ctx, up, message) // the one just written says on trial
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
