package controller

import (
	"context"
	"errors"
	"fmt"
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

// news is an event that is said once a process.
type news struct {
	reason  firewall.Reason
	message string
}

// tell has an event written with the next report that can.
func (c *Controller) tell(reason firewall.Reason, message string) {
	c.log(reason, message)
	c.news = append(c.news, news{reason, message})
}

// report tells what a reconcile has come to: events, log, status. It returns an
// error when the status can't be written, which stops nothing.
func (c *Controller) report(ctx context.Context, up outcome, specErr, workErr error) error {
	c.sendNews(ctx)
	specReason := firewall.SpecUnread
	if errors.Is(specErr, firewall.ErrInvalid) {
		specReason = firewall.SpecInvalid
	}
	holds := map[firewall.Reason]bool{specReason: specErr != nil, firewall.WorkFailed: workErr != nil}
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
	}{{specReason, specErr}, {firewall.WorkFailed, workErr}} {
		if p.err != nil {
			c.emit(ctx, p.reason, p.err.Error())
			message = join(message, p.err.Error())
		}
	}
	c.cfg.Log.Debug("reconciled", "reconcile", c.reconciles, "rules", c.rules)
	return c.setStatus(ctx, up, message)
}

func (c *Controller) setStatus(ctx context.Context, up outcome, message string) error {
	err := c.cfg.Store.SetStatus(ctx, c.status(up, message))
	if err != nil {
		c.cfg.Log.Error("the status can't be written", "error", err)
	}
	return err
}

func (c *Controller) sendNews(ctx context.Context) {
	for len(c.news) > 0 && c.send(ctx, c.news[0].reason, c.news[0].message) {
		c.news = c.news[1:]
	}
}

// emit logs each time and makes an event once, until something else is the case
// or an hour has gone by.
func (c *Controller) emit(ctx context.Context, reason firewall.Reason, message string) {
	c.log(reason, message)
	n := notice{reason, c.desired().version}
	now := time.Now()
	if t, ok := c.said[n]; ok && now.Sub(t) < again {
		return
	}
	if c.send(ctx, reason, message) {
		c.said[n] = now
	}
}

func (c *Controller) log(reason firewall.Reason, message string) {
	log := c.cfg.Log.Info
	if reason.Warning() {
		log = c.cfg.Log.Warn
	}
	log(message, "event", reason)
}

func (c *Controller) send(ctx context.Context, reason firewall.Reason, message string) bool {
	kind := "Normal"
	if reason.Warning() {
		kind = "Warning"
	}
	err := c.cfg.Store.Emit(ctx, firewall.Event{
		Time: time.Now().UTC(), Type: kind, Reason: reason, Message: message, Version: c.cfg.Version, PID: os.Getpid(),
	})
	if err != nil {
		c.cfg.Log.Error("the event can't be written", "event", reason, "error", err)
	}
	return err == nil
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
	if there := installed(st); there != nil {
		if !st.RestartNeeded {
			s.ActualSHA256 = there.SHA256.Hex()
		}
		if !up.leave && there.Version == s.NextVersion {
			s.NextVersion = "" // "latest", say, which the program calls otherwise
		}
	}
	if tr := st.Trial; tr != nil {
		s.Trial = &firewall.Trial{
			Version: tr.Candidate.Version, Starts: fmt.Sprintf("%d of %d", tr.Started, tr.Max), Deadline: tr.Deadline.String(),
			Failures: tr.Failures, Rollback: "selfupdate rollback --target " + st.Target + " --from " + tr.Candidate.SHA256.String(),
		}
	}
	for _, j := range st.Rejected {
		s.Rejected = append(s.Rejected, firewall.Rejected{
			Version: j.Version, SHA256: j.SHA256.Hex(), Class: j.Class, Verdict: j.Verdict, Reason: j.Reason,
			Clear: "selfupdate clear --target " + st.Target + " " + j.SHA256.String(),
		})
	}
	return s
}

// installed is the program at the target.
func installed(st selfupdate.Status) *selfupdate.Program {
	if st.Trial != nil && st.Trial.AtTarget {
		return &st.Trial.Candidate
	}
	return st.Current
}

// previous is the version that a roll back would bring.
func previous(st selfupdate.Status) string {
	var p selfupdate.Program
	switch {
	case st.Trial != nil && st.Trial.AtTarget && st.Current != nil:
		p = *st.Current
	case len(st.Previous) > 0:
		p = st.Previous[0]
	default:
		return ""
	}
	if p.Version != "" {
		return p.Version
	}
	return p.SHA256.String()
}

// onTrial is what a start on trial has to go.
func onTrial(version string, s selfupdate.Start) string {
	return fmt.Sprintf("%s is on trial: it has %v to confirm itself; starts left after this one: %d", version, s.Deadline.Round(time.Second), s.Left)
}

// rolledBack says what was left, why, and what is thought of it.
func rolledBack(version string, st selfupdate.Status) string {
	message := version + " is back"
	if n := len(st.Rejected); n > 0 && st.Rejected[n-1].Reason == st.Last.Reason {
		j := st.Rejected[n-1]
		message += " from " + j.Version + ": " + j.Class
		if j.Verdict != j.Class {
			message += ", " + j.Verdict
		}
	}
	if st.Last.Reason != "" {
		message += " (" + st.Last.Reason + ")"
	}
	return message
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
