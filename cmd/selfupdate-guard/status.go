package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

func (e *env) statusCommand() *command {
	var asJSON bool
	c := e.command("status", "say what is going on and what to type next")
	c.forms = []string{"status --target PATH [--json]"}
	c.about = "Says in plain words which state the program is in, what happens next by itself, and which command changes that. It only reads."
	c.flags.BoolVar(&asJSON, "json", false, "selfupdate.Status as JSON, for programs")
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
		x := explanation{target: e.target}
		x.status(st)
		return e.print(x.String())
	}
	return c
}

// explanation is a status in plain words: lines with a key, and below them what to
// type, indented.
type explanation struct {
	strings.Builder
	target string
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
	x.do(strings.TrimSpace("selfupdate-guard "+name+" --target "+quote(x.target)+" "+flags), why)
}

// unit is what the service is probably called.
func (x *explanation) unit() string { return filepath.Base(x.target) }

func (x *explanation) restart(why string) { x.do("systemctl restart "+quote(x.unit()), why) }

func (x *explanation) status(st selfupdate.Status) {
	x.say("target", "%s", st.Target)
	x.odd(st)
	switch {
	case st.Trial != nil:
		x.trial(st)
	case st.Current != nil:
		x.stable(st)
	case !st.Damaged:
		x.say("state", "empty: nothing is installed here")
	}
	if st.PendingRestart {
		x.say("restart", "pending: the program at the target was changed and the service not restarted yet; the next tick does it")
		x.restart("do it now")
	}
	for _, j := range st.Rejected {
		x.rejected(j)
	}
	x.history(st)
	x.protection(st.Protection)
}

// odd says what is not as it should be on disk.
func (x *explanation) odd(st selfupdate.Status) {
	if st.Missing {
		x.say("state", "missing: no file is at the target; the next start puts back what is kept of it, or the program before, if selfupdate-guard pre runs before it")
		x.restart("does that now")
	}
	if st.Damaged {
		x.say("state", "damaged: the record can't be read; the program is not affected, and the next start or update writes a new record from what is on disk. Rejections are lost")
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
	if !st.Missing && !st.Damaged && !st.Changed && !st.Unfinished {
		x.say("state", "stable: nothing to do")
	}
	x.program("current", c)
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
	case tr.Started == 0 && tr.Left == 0:
		x.say("state", "on trial, not started yet: %s is installed and waits for its first start; it then has %s to confirm", name, short(tr.Deadline))
		x.restart("start it")
	case tr.Left == 0:
		x.say("state", "on trial, not running: %s, start %d of %d has ended; %s", name, tr.Started, tr.Max, x.next(tr, before))
		x.restart("start it now")
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
	if !tr.AtTarget && !st.Missing {
		x.say("target", "is not the version on trial yet; the next start through selfupdate-guard pre switches to it")
	}
	if !tr.Expired {
		x.guard("confirm", "it works: keep it")
		x.guard("rollback", "it does not: go back, and reject it")
	}
}

// next says what the next start does in a trial with no process running.
func (x *explanation) next(tr *selfupdate.TrialStatus, before string) string {
	if tr.Started >= tr.Max {
		return before + " comes back with the next start"
	}
	return fmt.Sprintf("%s until %s comes back", more(tr.Max-tr.Started, "start"), before)
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
	x.say("rejected", "%s (%s, %s): %s", named(j.Version, j.SHA256.String()), j.Verdict, j.Class, text)
	if j.Reason != "" {
		x.say("because", "%s", j.Reason)
	}
	x.guard("clear "+j.SHA256.String(), "allow it again")
}

func (x *explanation) history(st selfupdate.Status) {
	if st.Trial == nil && len(st.Previous) > 0 {
		p := st.Previous[0]
		x.say("previous", "%s, kept on disk", named(p.Version, p.SHA256.String()))
		x.guard("rollback", "go back to it, and reject the current one")
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
