package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/metal-stack/selfreconcile/cmd/internal/operate"
	"github.com/metal-stack/selfreconcile/internal/shell"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

func statusCommand(e *env) *command {
	var target string
	c := &command{
		name: "status", summary: "say what is installed and what a rollback would do",
		forms: []string{"status --target PATH [-o json]"},
		about: "Shows the current program, what a rollback would go back to, what is rejected and how to allow it again, and " +
			"what happened last. It reads only, and asks no server.",
		flags:   e.newFlags("status"),
		order:   append([]string{"Flags:", "target"}, shared[:]...),
		example: "selfupdate status --target /usr/local/bin/firewall-controller",
	}
	c.flags.StringVar(&target, "target", "", "`PATH` of the program (required)")
	c.run = func(_ context.Context, args []string) error {
		if err := noArguments(args); err != nil {
			return err
		}
		if err := e.needTarget(target); err != nil {
			return err
		}
		st, err := selfupdate.ReadStatus(target, e.log())
		if err != nil {
			return err
		}
		return e.result(st, e.statusText(st))
	}
	return c
}

// table is lines with a key, of which the value may have several.
type table struct{ strings.Builder }

func (t *table) row(key string, lines ...string) {
	for _, l := range lines {
		if l = strings.ReplaceAll(l, "\n", " "); l != "" {
			if key != "" {
				key += ":"
			}
			fmt.Fprintf(t, "%-13s%s\n", key, l)
			key = ""
		}
	}
}

func (e *env) statusText(st selfupdate.Status) string {
	var t table
	t.row("target", st.Target)
	if st.PendingRestart {
		t.row("restart", "pending: the file at the target was changed, and its service was not restarted since: restart it")
	}
	label := "current"
	if st.Trial != nil {
		e.trialRows(&t, st)
		label = "before"
	}
	if c := st.Current; c != nil {
		t.row(label, or(c.Version, "version unknown")+", "+size(c.Size), c.SHA256.String(), published(c), c.URL)
		t.row("trust", or(c.Policy, "none recorded: it was not installed by this tool"))
	} else {
		t.row("current", "nothing is installed")
	}
	if st.Damaged {
		t.row("damaged", "the record can't be read: this is what the disk shows, and rejections are lost, and a trial that was going on: what is at the target stays, so check that it works; the next update writes a new record")
	}
	if st.Missing {
		t.row("missing", "the file is gone: the next start puts it back where selfupdate-guard pre runs before it; else go back, or apply a release with --create")
	}
	if st.Changed {
		t.row("changed", "the file is not the recorded one: somebody replaced it by hand; the next update keeps it as its starting point")
	}
	if st.Unfinished {
		t.row("unfinished", "an update or a rollback was interrupted; the next one ends it, and the target is whole all the same")
	}
	e.rollbackRows(&t, st)
	if tr := st.Trial; tr != nil && tr.Left > 0 && tr.AtTarget && !tr.Expired {
		t.row("keep", "when it works: selfupdate confirm --target "+shell.Word(e.target)+" --from "+tr.Candidate.SHA256.String())
	}
	if s := st.Spare; s != nil {
		t.row("kept", program(s.Version, s.SHA256.String()), "it was on trial; an update to it needs no download")
	}
	for _, r := range st.Rejected {
		t.row("rejected", program(r.Version, r.SHA256.String()), sentence(r.Class, r.Reason), verdict(r), "to allow it again: "+e.clearCommand(r))
	}
	for _, h := range st.HeldBack {
		t.row("held back", h.URL, fmt.Sprintf("refused %d times: %s", h.Count, h.Reason), "try again at once: selfupdate apply with --refresh")
	}
	if l := st.Last; l != nil {
		t.row("last", strings.TrimSuffix(l.Outcome+" at "+l.At.UTC().Format(time.RFC3339)+": "+l.Reason, ": "))
	}
	t.row("protection", protection(st.Protection))
	if st.RestartNeeded {
		t.row("restart", "this process is an older file of the target")
	}
	return t.String()
}

func published(p *selfupdate.Program) string {
	if p.Published.IsZero() {
		return ""
	}
	return p.Published.String() + " (the publisher's)"
}

func protection(p string) string {
	switch p {
	case "full":
		return "full — a version on trial that crashes or hangs is taken back from outside"
	case "no-timer":
		return "no-timer — selfupdate-guard pre was seen, but no tick: a version on trial that hangs before it gets far stays"
	case "no-helper":
		return "no-helper — no selfupdate-guard was seen since the machine was started: a version that crashes at its start stays until somebody rolls back"
	}
	return p
}

// trialRows describes a trial.
func (e *env) trialRows(t *table, st selfupdate.Status) {
	tr := st.Trial
	c, starts := tr.Candidate, fmt.Sprintf("start %d of %d", tr.Started, tr.Max)
	switch {
	case tr.Expired:
		starts += ", its time is over: the next start goes back"
	case tr.Left > 0:
		starts += ", " + short(tr.Left.Round(time.Second)) + " left to confirm"
	case tr.Started == 0 && st.Protection == "no-helper":
		starts += ": it has not got to Begin yet: not started, stopped in order, or crashing or hanging before it (nobody counts that here: no helper); if its service restarts over and over, roll back"
	default:
		starts += ", not running; a start has " + short(tr.Deadline) + " to confirm"
	}
	where := ""
	if !tr.AtTarget {
		where = "it is not at the target: a start switches to it"
	}
	t.row("on trial", append([]string{or(c.Version, "version unknown") + ", " + size(c.Size), c.SHA256.String(), published(&c), c.URL, starts, where, tr.Reason}, tr.Failures...)...)
}

func (e *env) rollbackRows(t *table, st selfupdate.Status) {
	back := st.Previous
	if st.Trial != nil && st.Current != nil {
		back = append([]selfupdate.Program{*st.Current}, back...)
	}
	if len(back) == 0 {
		t.row("rollback", "nothing to go back to")
		return
	}
	command := "selfupdate rollback --target " + shell.Word(e.target)
	if left := operate.Left(st); left != nil { // by the time that somebody types it, the trial may be over
		command += " --from " + left.SHA256.String()
	}
	t.row("rollback", "goes back to "+program(back[0].Version, back[0].SHA256.String()), command)
	for _, p := range back[1:] {
		t.row("", "and then to "+program(p.Version, p.SHA256.String()))
	}
}

// verdict says whether a rejected version is tried again.
func verdict(r selfupdate.Rejection) string {
	switch r.Verdict {
	case "pending":
		return "pending: decided once the program that came back has confirmed itself"
	case "inconclusive":
		if r.Retries > 0 {
			return fmt.Sprintf("inconclusive: an update may try it again, %d more at most", r.Retries)
		}
		return "inconclusive, but tried too often: not installed again"
	case "guilty":
		return "guilty: not installed again"
	case "manual":
		return "somebody rolled it back: not installed again"
	}
	return ""
}
