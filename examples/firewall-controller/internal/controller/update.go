package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/metal-stack/selfreconcile/examples/firewall-controller/internal/firewall"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// wanted is the version that the spec asks for and where it is.
type wanted struct{ version, url string }

// outcome is what became of the program in one reconcile. The zero value: nothing
// was asked for.
type outcome struct {
	reason  firewall.Reason // of the event; "" is none
	message string
	current bool // the program is the desired one
	leave   bool // another program is at the target
}

// flight is an update that is under way. It outlives a reconcile, so that a slow
// or stalled server holds up nothing else.
type flight struct {
	wanted  wanted
	cancel  context.CancelFunc
	done    chan struct{}
	outcome outcome // once done is closed
}

// landed yields when there is an update and it has ended.
func (f *flight) landed() <-chan struct{} {
	if f == nil {
		return nil
	}
	return f.done
}

// land gives an update up and waits for its end, which leaves nothing behind.
func (c *Controller) land() {
	if c.flight == nil {
		return
	}
	c.flight.cancel()
	<-c.flight.done
	c.flight = nil
}

// self brings the program to the version that the spec asks for. It waits a while
// for an update to end; one that takes longer goes on beside the rest of the work,
// and its end starts the next reconcile.
func (c *Controller) self(ctx context.Context) outcome {
	u, err := c.ready()
	if err != nil {
		return failure(err)
	}
	want := c.desired()
	if c.flight != nil && c.flight.wanted != want {
		c.land() // the operator has changed his mind
	}
	patience := time.Duration(0) // only the reconcile that starts an update waits for it
	if c.flight == nil {
		c.retry(ctx, u)
		if o, over := c.settled(u, want); over {
			return o
		}
		c.take(ctx, u, want)
		patience = c.cfg.Patience
	}
	select { // with no patience left both may be ready: then the next reconcile sees the end
	case <-c.flight.done:
		o := c.flight.outcome
		c.flight = nil
		return o
	case <-ctx.Done():
		return outcome{}
	case <-time.After(patience):
		return outcome{message: "the update to " + want.version + " is under way"}
	}
}

// settled answers what needs no update.
func (c *Controller) settled(u *selfupdate.Updater, want wanted) (outcome, bool) {
	if st, err := u.Status(); err == nil && st.RestartNeeded {
		return replaced(st), true
	}
	switch {
	case want == wanted{}:
		return outcome{}, true
	case want.url == "" && want.version == c.cfg.Version:
		return outcome{current: true}, true
	case want.url == "":
		return outcome{reason: firewall.SpecInvalid, message: errNoURL.Error()}, true
	}
	return outcome{}, false
}

// retry lifts all rejections once for each new value of the resource's retry
// annotation; the record remembers the last one.
func (c *Controller) retry(ctx context.Context, u *selfupdate.Updater) {
	if c.spec == nil || c.spec.Retry == "" {
		return
	}
	cleared, err := u.Clear(ctx, selfupdate.ClearOptions{All: true, Token: c.spec.Retry})
	if err != nil {
		c.cfg.Log.Warn("the rejections can't be lifted", "retry", c.spec.Retry, "error", err)
	}
	if len(cleared) == 0 {
		return
	}
	var versions []string
	for _, j := range cleared {
		versions = append(versions, j.Version)
	}
	c.tell(firewall.Allowed, strings.Join(versions, ", ")+" may be installed again: "+c.spec.Retry)
}

// take starts an update.
func (c *Controller) take(ctx context.Context, u *selfupdate.Updater, want wanted) {
	ctx, cancel := context.WithCancel(ctx)
	f := &flight{wanted: want, cancel: cancel, done: make(chan struct{})}
	c.flight = f
	go func() {
		defer close(f.done)
		defer cancel()
		f.outcome = c.update(ctx, u, want)
	}()
}

// update is the update itself, within the source's limits for each wait.
func (c *Controller) update(ctx context.Context, u *selfupdate.Updater, want wanted) outcome {
	rel, err := c.cfg.Release(want.version, want.url)
	if err != nil {
		return outcome{reason: firewall.SpecInvalid, message: "spec.controllerURL: " + err.Error()}
	}
	res, err := u.Apply(ctx, rel)
	switch {
	case errors.Is(err, selfupdate.ErrOnTrial):
		return outcome{message: want.version + " has to wait for the end of the trial"}
	case errors.Is(err, selfupdate.ErrRejected) && pending(u, want.version):
		return outcome{reason: firewall.UpdateHeldBack, message: err.Error()}
	case err != nil:
		return failure(err)
	}
	if res.Outcome == selfupdate.Updated {
		return outcome{reason: firewall.Updated, message: updated(res), leave: true}
	}
	if res.RestartNeeded {
		return outcome{reason: firewall.Replaced, message: "the program file is " + res.Version + " now", leave: true}
	}
	return outcome{current: true}
}

// pending reports whether the version failed, and nobody knows yet whose fault it was.
func pending(u *selfupdate.Updater, version string) bool {
	st, err := u.Status()
	return err == nil && slices.ContainsFunc(st.Rejected, func(j selfupdate.Rejection) bool {
		return j.Version == version && j.Verdict == "pending"
	})
}

func updated(res selfupdate.Result) string {
	from := res.Previous
	if from == "" {
		from = "another file of that name"
	}
	message := fmt.Sprintf("%s is installed in place of %s, %s", res.Version, from, res.SHA256)
	if res.OnTrial {
		message += ", on trial"
	}
	return message
}

// replaced is what somebody else did to the program file: an operator who went
// back, or another updater.
func replaced(st selfupdate.Status) outcome {
	message := "the program file was replaced"
	if p := installed(st); p != nil && p.Version != "" {
		message += " by " + p.Version
	}
	if l := last(st); l != "" {
		message += " (" + l + ")"
	}
	return outcome{reason: firewall.Replaced, message: message, leave: true}
}

// failure sorts an error by what an operator does about it.
func failure(err error) outcome {
	o := outcome{reason: firewall.UpdateRefused, message: err.Error()}
	switch class := selfupdate.ClassOf(err); {
	case errors.Is(err, selfupdate.ErrRejected):
		o.reason = firewall.UpdateRejected
	case errors.Is(err, selfupdate.ErrHeldBack):
		o.reason = firewall.UpdateHeldBack
	case class == selfupdate.Temporary:
		o.reason = firewall.UpdateFailedTemporary
	case class == selfupdate.Local || class == 0:
		o.reason = firewall.UpdateFailedLocal
	}
	return o
}
