package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/metal-stack/selfreconcile/internal/shell"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

func (e *env) statusCommand() *command {
	var asJSON bool
	var unit string
	c := e.command("status", "say what is going on and what to type next")
	c.forms = []string{"status --target PATH [--unit NAME] [--json]"}
	c.about = "Says in plain words which state the program is in, what happens next by itself, and which command changes that. It only reads."
	c.flags.BoolVar(&asJSON, "json", false, "selfupdate.Status as JSON, for programs")
	c.flags.Func("o", "`FORMAT`: text, or json, the same as --json (default text)", func(s string) error {
		if s != "text" && s != "json" {
			return errors.New("text or json")
		}
		asJSON = s == "json"
		return nil
	})
	c.flags.StringVar(&unit, "unit", "", "`NAME` of the program's systemd unit, for the commands that are shown")
	c.example = "selfupdate-guard status --target /usr/local/bin/firewall-controller"
	c.run = func(_ context.Context, args []string) error {
		if err := noArguments(args); err != nil {
			return err
		}
		st, err := selfupdate.ReadStatus(e.target, nil)
		if err != nil {
			return err
		}
		if asJSON {
			return e.printJSON(st)
		}
		x := explanation{target: e.target, unit: unit}
		x.status(st)
		return e.print(x.String())
	}
	return c
}

// explanation is a status in plain words: lines with a key, and below them what to
// type, indented.
type explanation struct {
	strings.Builder
	target, unit string
}

func (x *explanation) say(key, format string, args ...any) {
	fmt.Fprintf(x, "%-12s%s\n", key+":", strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
}

// do is a command, and what it is for.
func (x *explanation) do(command, why string) {
	fmt.Fprintf(x, "%-12s%s   # %s\n", "", command, why)
}

func (x *explanation) guard(args, why string) {
	name, flags, _ := strings.Cut(args, " ")
	x.do(strings.TrimSpace("selfupdate-guard "+name+" --target "+shell.Word(x.target)+" "+flags), why)
}

// service is the command of systemctl for the unit, or plain words.
func (x *explanation) service(verb, why string) {
	if x.unit == "" {
		fmt.Fprintf(x, "%-12s%s its service   # %s\n", "", verb, why)
		return
	}
	x.do("systemctl "+verb+" "+shell.Word(x.unit), why)
}

func (x *explanation) restart(why string) { x.service("restart", why) }

// rollback is never without --from: by the time that somebody types it, the trial may be over.
func (x *explanation) rollback(left selfupdate.Program, why string) {
	args := "rollback --from " + left.SHA256.String()
	if x.unit != "" {
		args += " --restart-unit " + shell.Word(x.unit)
	}
	x.guard(args, why)
}

func (x *explanation) status(st selfupdate.Status) {
	x.say("target", "%s", st.Target)
	x.pending(st)
	x.odd(st)
	switch {
	case st.Trial != nil:
		x.trial(st)
	case st.Current != nil:
		x.stable(st)
	case !st.Damaged:
		x.say("state", "empty: nothing is installed here: check the path, or install a version with selfupdate apply --create")
	}
	for _, j := range st.Rejected {
		x.rejected(j)
	}
	x.history(st)
	x.protection(st.Protection)
}

// pending promises a tick only where one was seen.
func (x *explanation) pending(st selfupdate.Status) {
	if !st.PendingRestart {
		return
	}
	then := ""
	if st.Protection == "full" {
		then = "; the next tick does it"
	}
	x.say("state", "restart pending: the file at the target was changed, and its service was not restarted since%s", then)
	x.restart("do it now")
}

// odd says what is not as it should be on disk.
func (x *explanation) odd(st selfupdate.Status) {
	if st.Missing {
		x.say("state", "missing: no file is at the target; the next start puts back what is kept of it, or the program before, if selfupdate-guard pre runs before it")
		x.restart("does that now")
	}
	if st.Damaged {
		x.say("state", "damaged: the record can't be read; the program is not affected, and the next start or update writes a new record from what is on disk. Rejections are lost, and a trial that was going on: what is at the target stays, so check that it works")
		x.guard("pre", "write the new record now")
	}
	if st.Changed {
		x.say("state", "changed: somebody replaced the file by hand; it stays, and the next start or update records it")
		x.guard("pre", "record it now")
	}
	if st.Unfinished {
		x.say("state", "unfinished: an update or a rollback was interrupted; the target is whole, and the next update or rollback finishes it")
	}
}

func (x *explanation) stable(st selfupdate.Status) {
	c := st.Current
	if !st.Missing && !st.Damaged && !st.Changed && !st.Unfinished && !st.PendingRestart {
		x.say("state", "stable: no trial under way (whether it runs: %s)", x.look())
	}
	x.program("current", c)
}

// look is how to see whether the service runs.
func (x *explanation) look() string {
	if x.unit == "" {
		return "systemctl status its service"
	}
	return "systemctl status " + shell.Word(x.unit)
}

func (x *explanation) program(key string, p *selfupdate.Program) {
	if p.Version == "" {
		x.say(key, "version unknown, %s", p.SHA256)
		return
	}
	x.say(key, "%s, %s", p.Version, p.SHA256)
}

func (x *explanation) trial(st selfupdate.Status) {
	tr := st.Trial
	name, before := named(tr.Candidate.Version, tr.Candidate.SHA256.String()), "the program before"
	if st.Current != nil {
		before = named(st.Current.Version, st.Current.SHA256.String())
	}
	switch {
	case tr.Expired:
		x.say("state", "expired: %s was on trial and is given up (%s); %s comes back with the next start", name, cmp.Or(tr.Reason, "no reason recorded"), before)
		x.restart("go back now")
	case !tr.AtTarget && !st.Missing:
		x.say("state", "on trial, not at the target: %s is there; the next start through selfupdate-guard pre switches to %s, once there is room to record it", before, name)
		x.restart("switch now")
	case unseen(st):
		x.say("state", "on trial: %s has not got to Begin yet: not started, stopped in order, or crashing or hanging before it (nobody counts that here: no helper)", name)
		x.service("status", "look: if it restarts over and over, go back")
	case tr.Started == 0 && tr.Left == 0:
		x.say("state", "on trial, no start counted: %s waits for its first start, or was stopped in order; from its start it has %s to confirm", name, short(tr.Deadline))
		x.restart("start it")
	case tr.Left == 0:
		x.say("state", "on trial, not running: %s, start %d of %d has ended; %s", name, tr.Started, tr.Max, x.next(tr, before))
		x.restart(x.nextIs(tr))
	default:
		x.say("state", "on trial: %s, start %d of %d, %s left to confirm; if it does not, %s comes back by itself", name, tr.Started, tr.Max, short(tr.Left), before)
	}
	x.program("on trial", &tr.Candidate)
	if st.Current != nil {
		x.program("before", st.Current)
	}
	for _, f := range tr.Failures {
		x.say("failed", "%s", f)
	}
	x.decide(st)
}

// unseen reports whether nobody would have seen a start of the program on trial
// that did not get to Begin.
func unseen(st selfupdate.Status) bool {
	return st.Trial.Started == 0 && st.Trial.Left == 0 && st.Protection == "no-helper"
}

// decide offers to confirm only what runs, for all that is known.
func (x *explanation) decide(st selfupdate.Status) {
	if st.Trial.Expired {
		return
	}
	c := st.Trial.Candidate
	x.rollback(c, "it does not work: go back, and reject it")
	if st.Trial.Left > 0 && st.Trial.AtTarget {
		x.guard("confirm --from "+c.SHA256.String(), "it works: keep it")
	}
}

// next says what the next start does in a trial with no process running.
func (x *explanation) next(tr *selfupdate.TrialStatus, before string) string {
	if tr.Started >= tr.Max {
		return before + " comes back with the next start"
	}
	return fmt.Sprintf("%s until %s comes back", more(tr.Max-tr.Started, "start"), before)
}

func (x *explanation) nextIs(tr *selfupdate.TrialStatus) string {
	if tr.Started >= tr.Max {
		return "go back now"
	}
	return "start it now"
}

// verdicts is what each means for what happens next.
var verdicts = map[string]string{
	"pending":      "it failed on trial, and whether that was its own fault shows when the program that runs now has confirmed itself; it is not installed before that",
	"inconclusive": "it failed on trial, but that may have been an outage: it is tried again by itself",
	"guilty":       "it failed on trial and the program before worked in its place: it is not installed again",
	"manual":       "somebody rolled it back: it is not installed again",
}

func (x *explanation) rejected(j selfupdate.Rejection) {
	text := cmp.Or(verdicts[j.Verdict], "it is not installed again")
	switch {
	case j.Class == "exec" && j.Verdict == "guilty":
		text = "it can't be executed here: it is not installed again"
	case j.Class == "crash" && j.Verdict == "guilty":
		text = "it crashes at its start: it is not installed again"
	case j.Verdict == "inconclusive" && j.Retries == 0:
		text = "it failed on trial too often: it is not installed again"
	case j.Verdict == "inconclusive":
		text += fmt.Sprintf(", %s at most", more(j.Retries, "time"))
	}
	kind := j.Verdict
	if j.Class != j.Verdict {
		kind += ", " + j.Class
	}
	x.say("rejected", "%s (%s): %s", named(j.Version, j.SHA256.String()), kind, text)
	if j.Reason != "" {
		x.say("because", "%s", j.Reason)
	}
	x.guard("clear "+j.SHA256.String(), "allow it again")
}

func (x *explanation) history(st selfupdate.Status) {
	if st.Trial == nil && st.Current != nil && len(st.Previous) > 0 {
		p := st.Previous[0]
		x.say("previous", "%s, kept on disk", named(p.Version, p.SHA256.String()))
		x.rollback(*st.Current, "go back to it, and reject the current one")
	}
	if l := st.Last; l != nil {
		x.say("last", "%s", strings.TrimSuffix(l.Outcome+" at "+l.At.UTC().Format(time.RFC3339)+": "+l.Reason, ": "))
	}
}

func (x *explanation) protection(level string) {
	switch level {
	case "full":
		x.say("protection", "full: pre and tick were seen since the machine was started")
	case "no-timer":
		x.say("protection", "no-timer: pre was seen since the machine was started, tick was not: a version that hangs stays, unless it guards itself or systemd's watchdog does. For full: the timer of docs/operations.md")
	default:
		x.say("protection", "no-helper: pre was not seen since the machine was started: a version that can't be executed or crashes at its start stays. For full: the drop-in and the timer of docs/operations.md")
	}
}

// more counts things that are left.
func more(n int, thing string) string {
	switch n {
	case 0:
		return "no more " + thing + "s"
	case 1:
		return "1 more " + thing
	}
	return fmt.Sprintf("%d more %ss", n, thing)
}
