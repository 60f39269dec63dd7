package controller

import (
	"context"
	"maps"
	"os"
	"time"

	"github.com/metal-stack/selfreconcile/examples/firewall-controller/internal/firewall"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// again is when an event that still holds is repeated: the time that Kubernetes
// keeps one.
const again = time.Hour

// notice tells events apart.
type notice struct {
	reason  firewall.Reason
	version string // desired
}

// report tells what a reconcile has come to: events, log, status. That one of them
// can't be written is logged; it stops nothing.
func (c *Controller) report(ctx context.Context, up outcome, specErr, workErr error) {
	if c.found != nil && c.found.Last != nil && c.found.Last.Outcome == string(selfupdate.RolledBack) {
		c.emit(ctx, firewall.RolledBack, c.cfg.Version+" is back ("+last(*c.found)+")")
	}
	c.found = nil
	holds := map[firewall.Reason]bool{firewall.SpecInvalid: specErr != nil, firewall.WorkFailed: workErr != nil}
	holds[up.reason] = true
	if c.flight == nil {
		maps.DeleteFunc(c.said, func(n notice, _ time.Time) bool { return !holds[n.reason] })
	}
	message := up.message
	if up.reason != "" {
		c.emit(ctx, up.reason, up.message)
	}
	for _, p := range []struct {
		reason firewall.Reason
		err    error
	}{{firewall.SpecInvalid, specErr}, {firewall.WorkFailed, workErr}} {
		if p.err != nil {
			c.emit(ctx, p.reason, p.err.Error())
			message = join(message, p.err.Error())
		}
	}
	if err := c.cfg.Store.SetStatus(ctx, c.status(up, message)); err != nil {
		c.cfg.Log.Error("the status can't be written", "error", err)
	}
	c.cfg.Log.Debug("reconciled", "reconcile", c.reconciles, "rules", c.rules)
}

// emit logs each time and makes an event once, until something else is the case
// or an hour has gone by.
func (c *Controller) emit(ctx context.Context, reason firewall.Reason, message string) {
	kind, log := "Normal", c.cfg.Log.Info
	if reason.Warning() {
		kind, log = "Warning", c.cfg.Log.Warn
	}
	log(message, "event", reason)
	n := notice{reason, c.desired().version}
	now := time.Now()
	if t, ok := c.said[n]; ok && now.Sub(t) < again {
		return
	}
	err := c.cfg.Store.Emit(ctx, firewall.Event{
		Time: now.UTC(), Type: kind, Reason: reason, Message: message, Version: c.cfg.Version, PID: os.Getpid(),
	})
	if err != nil {
		c.cfg.Log.Error("the event can't be written", "event", reason, "error", err)
		return
	}
	c.said[n] = now
}

func (c *Controller) status(up outcome, message string) firewall.Status {
	s := firewall.Status{
		ActualVersion: c.cfg.Version,
		Message:       message,
		LastReconcile: time.Now().UTC().Truncate(time.Second),
		Reconciles:    c.reconciles,
		PID:           os.Getpid(),
		RulesInForce:  c.rules,
	}
	if want := c.desired().version; !up.current && want != c.cfg.Version {
		s.NextVersion = want
	}
	if c.updater == nil {
		return s
	}
	st, err := c.updater.Status()
	if err != nil {
		s.Message = join(s.Message, err.Error())
		return s
	}
	s.LastVersion, s.LastOutcome = previous(st), last(st)
	s.Protection, s.RestartNeeded = st.Protection, st.RestartNeeded
	if st.Current != nil && !st.RestartNeeded {
		s.ActualSHA256 = st.Current.SHA256.Hex()
	}
	if st.Current != nil && !up.leave && st.Current.Version == s.NextVersion {
		s.NextVersion = "" // "latest", say, which the program calls otherwise
	}
	for _, j := range st.Rejected {
		s.Rejected = append(s.Rejected, firewall.Rejected{
			Version: j.Version, SHA256: j.SHA256.Hex(), Reason: j.Reason,
			Clear: "selfupdate clear --target " + st.Target + " " + j.SHA256.String(),
		})
	}
	return s
}

// previous is the version that a roll back would bring.
func previous(st selfupdate.Status) string {
	if len(st.Previous) == 0 {
		return ""
	}
	if v := st.Previous[0].Version; v != "" {
		return v
	}
	return st.Previous[0].SHA256.String()
}

// last is the last change of the program file, in words.
func last(st selfupdate.Status) string {
	if st.Last == nil {
		return ""
	}
	return join(st.Last.Outcome, st.Last.Reason)
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ": " + b
}
