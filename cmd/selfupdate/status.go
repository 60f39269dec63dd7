package main

import (
	"context"
	"fmt"
	"strings"
	"time"

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
	if c := st.Current; c != nil {
		t.row("current", or(c.Version, "version unknown")+", "+size(c.Size), c.SHA256.String(), published(c), c.URL)
		t.row("trust", or(c.Policy, "none recorded: it was not installed by this tool"))
	} else {
		t.row("current", "nothing is installed")
	}
	if st.Phase == "trial" {
		t.row("phase", "on trial: not confirmed yet")
	}
	if st.Damaged {
		t.row("damaged", "the record can't be read: this is what the disk shows, and rejections are lost; the next update writes a new record")
	}
	if st.Missing {
		t.row("missing", "the file is gone: go back, or apply a release with --create")
	}
	if st.Changed {
		t.row("changed", "the file is not the recorded one: somebody replaced it by hand; the next update keeps it as its starting point")
	}
	if st.Unfinished {
		t.row("unfinished", "an update or a rollback was interrupted; the next one ends it, and the target is whole all the same")
	}
	if len(st.Previous) > 0 {
		t.row("rollback", "goes back to "+program(st.Previous[0].Version, st.Previous[0].SHA256.String()), "selfupdate rollback --target "+quote(e.target))
		for _, p := range st.Previous[1:] {
			t.row("", "and then to "+program(p.Version, p.SHA256.String()))
		}
	} else {
		t.row("rollback", "nothing to go back to")
	}
	for _, r := range st.Rejected {
		t.row("rejected", program(r.Version, r.SHA256.String()), sentence(r.Class, r.Reason), "to allow it again: "+e.clearCommand(r))
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
	if p == "none" {
		return "none — a version that crashes stays until somebody rolls back"
	}
	return p
}
