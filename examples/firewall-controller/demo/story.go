//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/metal-stack/selfreconcile/examples/firewall-controller/internal/firewall"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// story is what is shown, in order. Each step starts from what the one before it
// has made sure of.
func (d *demo) story() []step {
	return []step{
		{v0 + " is installed and does its work", d.works},
		{v1 + ": replaced while running, on trial, confirmed", d.updates},
		{v2 + " does not reach its API: back, tried once more, back, rejected", d.unhealthy},
		{v3 + " crashes before it gets anywhere: back after " + strconv.Itoa(trialStarts) + " starts, rejected", d.crashes},
		{v4 + " is another machine's: refused before the swap", d.refuses},
		{v5 + " is damaged on the way, comes, and the power fails in its trial: confirmed", d.repaired},
		{"The operator goes back: " + v1 + " again, and " + v5 + " stays away", d.goesBack},
		{"An annotation of the resource allows again what is rejected: " + v5 + " comes back", d.retries},
		{"Stop", d.stops},
	}
}

func (d *demo) works(ctx context.Context) error {
	before := d.server.asked()
	pid, err := d.reports(ctx, v0, 0)
	if err != nil {
		return err
	}
	st, err := d.readStatus()
	if err == nil && st.RulesInForce != 1 {
		err = fmt.Errorf("%d rules in force, not 1", st.RulesInForce)
	}
	if err != nil {
		return err
	}
	d.ok("pid %d reports %s, rules in force: %d", pid, st.ActualVersion, st.RulesInForce)
	first := d.server.asked().minus(before)
	if err := d.goesOn(ctx, pid, 3); err != nil {
		return err
	}
	if all := d.server.asked().minus(before); all != first || first.programs != 0 {
		return fmt.Errorf("requests for nothing: %v", all)
	}
	d.ok("requests: %v, to know what is installed; none in 3 more reconciles", first)
	d.table.row(v0, pid, "installed, at work", first)
	return nil
}

func (d *demo) updates(ctx context.Context) error {
	old, before := d.service.now().pid, d.server.asked()
	if err := d.change(v1, 1); err != nil {
		return err
	}
	pid, err := d.replacedBy(ctx, v1, old)
	if err != nil {
		return err
	}
	requests := d.server.asked().minus(before)
	if requests.programs != 1 {
		return fmt.Errorf("requests: %v, want 1 program", requests)
	}
	if err := d.confirmed(ctx, v1, pid); err != nil {
		return err
	}
	st, err := selfupdate.ReadStatus(d.target, nil)
	if err != nil {
		return err
	}
	if len(st.Previous) == 0 || st.Previous[0].SHA256.Hex() != d.releases[v0].sha256 {
		return fmt.Errorf("%s is not kept: %v", v0, st.Previous)
	}
	d.ok("%s is kept to go back to; requests: %v", v0, requests)
	d.table.row(v1, pid, "on trial, confirmed", requests)
	return nil
}

// confirmed waits until the process has said that its version is on trial and then
// that it is confirmed, and until the record says so.
func (d *demo) confirmed(ctx context.Context, version string, pid int) error {
	for _, reason := range []firewall.Reason{firewall.OnTrial, firewall.Confirmed} {
		if err := d.says(ctx, reason, pid, ""); err != nil {
			return err
		}
	}
	st, err := selfupdate.ReadStatus(d.target, nil)
	if err == nil && (st.Phase != "stable" || st.Current.Version != version) {
		err = fmt.Errorf("the record says %s, %+v", st.Phase, st.Current)
	}
	if err != nil {
		return err
	}
	d.fine("events OnTrial and Confirmed by pid %d", pid)
	return nil
}

// says waits for an event of that process, with that text in it.
func (d *demo) says(ctx context.Context, reason firewall.Reason, pid int, text string) error {
	return eventually(ctx, fmt.Sprintf("event %s by pid %d", reason, pid), func() error {
		e, err := d.event(reason, pid)
		if err == nil && !strings.Contains(e.Message, text) {
			err = fmt.Errorf("it says %q", e.Message)
		}
		return err
	})
}

// unhealthy is the version of the maintainers' question: it runs, and does not reach
// the cluster.
func (d *demo) unhealthy(ctx context.Context) error {
	old, before := d.service.now().pid, d.server.asked()
	if err := d.change(v2, 1); err != nil {
		return err
	}
	for try := 1; try <= 2; try++ {
		candidate, err := d.fails(ctx, v2, try)
		if err != nil {
			return err
		}
		if candidate.exit != "exit status 3" && candidate.exit != "exit status 0" || !candidate.start.OnTrial {
			return fmt.Errorf("pid %d: %s", candidate.pid, candidate.exit)
		}
		if old, err = d.reports(ctx, v1, old); err != nil {
			return err
		}
		if err := d.says(ctx, firewall.RolledBack, old, v2+": unhealthy, pending (not confirmed within "+trialDeadline.String()); err != nil {
			return err
		}
		d.ok("try %d: pid %d never reached its API and left; pid %d is %s again", try, candidate.pid, old, v1)
		if try == 1 {
			if err := d.says(ctx, firewall.UpdateHeldBack, old, "until the program that came back has confirmed itself"); err != nil {
				return err
			}
			d.ok("it might be the network: %s is tried once more when %s has shown that it is well here", v2, v1)
		}
	}
	return d.staysAway(ctx, v2, old, before, "unhealthy", "never reached its API, 2 trials: rejected")
}

func (d *demo) crashes(ctx context.Context) error {
	old, before := d.service.now().pid, d.server.asked()
	if err := d.change(v3, 1); err != nil {
		return err
	}
	for try := 1; try <= trialStarts; try++ {
		candidate, err := d.fails(ctx, v3, try)
		if err != nil {
			return err
		}
		if candidate.exit != "exit status 2" || candidate.logged("starting") {
			return fmt.Errorf("pid %d: %s", candidate.pid, candidate.exit)
		}
	}
	pid, err := d.reports(ctx, v1, old)
	if err != nil {
		return err
	}
	if n := len(d.runs(v3)); n != trialStarts {
		return fmt.Errorf("%s was started %d times", v3, n)
	}
	if err := d.says(ctx, firewall.RolledBack, pid, v3+": crash, guilty"); err != nil {
		return err
	}
	d.ok("%s was started %d times and never got to Begin; pid %d is %s again", v3, trialStarts, pid, v1)
	return d.staysAway(ctx, v3, pid, before, "crash", fmt.Sprintf("crashed at its start, %d times: rejected", trialStarts))
}

// runs returns the processes of a version.
func (d *demo) runs(version string) []process {
	return slices.DeleteFunc(d.service.processes(), func(p process) bool { return p.start.Version != version || !p.start.OnTrial })
}

// fails waits for the end of the n-th process of a version.
func (d *demo) fails(ctx context.Context, version string, n int) (p process, err error) {
	err = eventually(ctx, fmt.Sprintf("process %d of %s has ended", n, version), func() error {
		runs := d.runs(version)
		if len(runs) < n {
			return fmt.Errorf("it had %d", len(runs))
		}
		if p = runs[n-1]; !p.exited {
			return fmt.Errorf("pid %d is running", p.pid)
		}
		return nil
	})
	return p, err
}

// staysAway makes sure that the failed version, which the spec still wants, is
// rejected and not downloaded again, and that the work goes on.
func (d *demo) staysAway(ctx context.Context, version string, pid int, before counts, class, what string) error {
	if err := d.says(ctx, firewall.UpdateRejected, pid, ""); err != nil {
		return err
	}
	if err := d.goesOn(ctx, pid, 3); err != nil {
		return err
	}
	requests := d.server.asked().minus(before)
	now, err := d.readStatus()
	switch {
	case err != nil:
		return err
	case requests.programs != 1:
		return fmt.Errorf("downloaded again: %v", requests)
	case now.NextVersion != version || now.ActualVersion != v1 || now.RulesInForce != 1 || len(now.Rejected) == 0:
		return fmt.Errorf("the status says %+v", now)
	}
	j := now.Rejected[len(now.Rejected)-1]
	if j.Version != version || j.Class != class || j.Verdict != "guilty" {
		return fmt.Errorf("the status says %+v", j)
	}
	d.ok("its status says %s %s: %s; nextversion is still %s", j.Verdict, version, j.Class, version)
	d.ok("pid %d is at work, %d reconciles so far; requests in all: %v", pid, now.Reconciles, requests)
	d.table.row(version, d.lastRun(version), what, requests)
	return nil
}

func (d *demo) lastRun(version string) int {
	runs := d.runs(version)
	return runs[len(runs)-1].pid
}

func (d *demo) refuses(ctx context.Context) error {
	pid, before := d.service.now().pid, d.server.asked()
	files, err := d.listing()
	if err != nil {
		return err
	}
	st, err := d.readStatus()
	if err != nil {
		return err
	}
	if err := d.change(v4, 2); err != nil {
		return err
	}
	if err := d.says(ctx, firewall.UpdateRefused, pid, "not a program for this machine"); err != nil {
		return err
	}
	if err := d.says(ctx, firewall.UpdateHeldBack, pid, "next try in"); err != nil {
		return err
	}
	d.fine("events UpdateRefused and UpdateHeldBack by pid %d", pid)
	if err := d.stillAtWork(ctx, pid, st.Reconciles); err != nil {
		return err
	}
	requests := d.server.asked().minus(before)
	if requests.programs != 2 || len(d.runs(v4)) != 0 {
		return fmt.Errorf("requests: %v, started: %v", requests, d.runs(v4))
	}
	if err := d.nothingLeft(ctx, files); err != nil {
		return err
	}
	d.ok("requests: %v: after a second look it waits a minute, then two, …", requests)
	d.ok("the %d files and directories in $DIR/bin are what they were, byte by byte, but for the record", len(files))
	d.table.row(v4, 0, "another machine's: refused, never started", requests)
	return nil
}

// stillAtWork waits for three more reconciles by the same process, and for the rule
// that came with the same spec.
func (d *demo) stillAtWork(ctx context.Context, pid, reconciles int) error {
	if err := d.goesOn(ctx, pid, 3); err != nil {
		return err
	}
	now, err := d.readStatus()
	if err != nil {
		return err
	}
	if now.NextVersion != v4 || now.ActualVersion != v1 || now.RulesInForce != 2 || !strings.Contains(now.Message, "not a program for this machine") {
		return fmt.Errorf("the status says %+v", now)
	}
	rules, err := os.ReadFile(d.rules)
	if err != nil {
		return err
	}
	if n := bytes.Count(rules, []byte(" snat to ")); n != 2 {
		return fmt.Errorf("%d rules in %s", n, d.rules)
	}
	d.ok("pid %d is still %s and at work: reconcile %d → %d, rules in force: %d", pid, now.ActualVersion, reconciles, now.Reconciles, now.RulesInForce)
	d.fine("its status says nextversion %s, and why it is not that", now.NextVersion)
	return nil
}

// nothingLeft waits for a moment between two attempts and compares: a file that an
// attempt left would stay in every such moment.
func (d *demo) nothingLeft(ctx context.Context, want map[string]string) error {
	return eventually(ctx, "the program's directory is what it was", func() error {
		got, err := d.listing()
		if err != nil {
			return err
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("it holds %v", slices.Sorted(maps.Keys(got)))
		}
		return nil
	})
}

// repaired is the fixed version, whose first download is damaged and whose first
// process is killed in its trial.
func (d *demo) repaired(ctx context.Context) error {
	old, before := d.service.now().pid, d.server.asked()
	d.server.corrupt(v5)
	d.tell("server", "the first %s that is sent will have one wrong bit", v5)
	if err := d.change(v5, 1); err != nil {
		return err
	}
	if err := d.says(ctx, firewall.UpdateRefused, old, "digest mismatch"); err != nil {
		return err
	}
	d.fine("event UpdateRefused by pid %d, which goes on", old)
	victim, err := d.powerCut(ctx, v5)
	if err != nil {
		return err
	}
	pid, err := d.reports(ctx, v5, victim)
	if err != nil {
		return err
	}
	if p := d.service.find(pid); p.start.Left != trialStarts-2 || !p.start.OnTrial {
		return fmt.Errorf("before pid %d the helper said %+v", pid, p.start)
	}
	d.ok("pid %d was killed in the trial, and nobody saw how it ended: pid %d is start 2 of %d", victim, pid, trialStarts)
	if err := d.confirmed(ctx, v5, pid); err != nil {
		return err
	}
	requests := d.server.asked().minus(before)
	if requests.programs != 2 {
		return fmt.Errorf("requests: %v, want 2 programs", requests)
	}
	d.table.row(v5, pid, "damaged, sent again, killed on trial, confirmed", requests)
	return nil
}

// powerCut kills the first process of the version once it has come up, without a word
// to the helper, and returns its pid.
func (d *demo) powerCut(ctx context.Context, version string) (pid int, err error) {
	err = eventually(ctx, version+" is on trial", func() error {
		p := d.service.now()
		if p.start.Version != version || !p.logged("starting version="+version) {
			return fmt.Errorf("pid %d is not", p.pid)
		}
		pid = p.pid
		return nil
	})
	if err != nil {
		return 0, err
	}
	d.tell("power", "fails: kill -9 of pid %d", pid)
	d.service.signal(syscall.SIGKILL)
	return pid, eventually(ctx, "it is gone", func() error {
		p := d.service.find(pid)
		if !p.exited || p.exit != "signal: killed" || p.logged("is confirmed") {
			return fmt.Errorf("pid %d: %q", pid, p.exit)
		}
		return nil
	})
}

func (d *demo) goesBack(ctx context.Context) error {
	old := d.service.now().pid
	spec, err := os.ReadFile(d.spec)
	if err != nil {
		return err
	}
	before := d.server.asked()
	if err := d.operator(ctx, "rollback", "--target", d.target, "--reason", "drops packets"); err != nil {
		return err
	}
	pid, err := d.replacedBy(ctx, v1, old)
	if err != nil {
		return err
	}
	for _, reason := range []firewall.Reason{firewall.RolledBack, firewall.UpdateRejected} {
		if err := d.says(ctx, reason, pid, "drops packets"); err != nil {
			return err
		}
	}
	if err := d.goesOn(ctx, pid, 3); err != nil {
		return err
	}
	requests := d.server.asked().minus(before)
	now, err := d.readStatus()
	switch {
	case err != nil:
		return err
	case requests.programs != 0:
		return fmt.Errorf("the rejected version was downloaded: %v", requests)
	case now.NextVersion != v5 || len(now.Rejected) != 3 || now.Rejected[2].Version != v5 || now.Rejected[2].Verdict != "manual":
		return fmt.Errorf("the status says %+v", now)
	}
	if same, err := os.ReadFile(d.spec); err != nil || !bytes.Equal(same, spec) {
		return fmt.Errorf("the spec was changed (%v)", err)
	}
	d.ok("events RolledBack and UpdateRejected by pid %d; the spec still says %s, untouched", pid, v5)
	d.ok("after %d reconciles it is still %s; requests: %v", now.Reconciles, now.ActualVersion, requests)
	d.table.row(v1, pid, "went back from "+v5+", which is rejected", requests)
	return nil
}

func (d *demo) retries(ctx context.Context) error {
	old, before := d.service.now().pid, d.server.asked()
	d.tell("operator", "annotates it: %s: packets were fine", firewall.RetryAnnotation)
	if err := d.writeSpec(v5, 1, "packets were fine"); err != nil {
		return err
	}
	pid, err := d.replacedBy(ctx, v5, old)
	if err != nil {
		return err
	}
	if err := d.says(ctx, firewall.Allowed, old, strings.Join([]string{v2, v3, v5}, ", ")+" may be installed again"); err != nil {
		return err
	}
	d.ok("it allows all of them, once; the spec wants %s", v5)
	if err := d.confirmed(ctx, v5, pid); err != nil {
		return err
	}
	d.table.row(v5, pid, "allowed again, on trial, confirmed", d.server.asked().minus(before))
	return nil
}

func (d *demo) stops(context.Context) error {
	d.poller.stop()
	d.service.stop()
	p := d.service.now()
	if !p.exited || p.exit != "exit status 0" {
		return fmt.Errorf("pid %d: %s", p.pid, p.exit)
	}
	d.ok("pid %d ended in order when it was told to", p.pid)
	runs, crashes, answers, failures := d.poller.result()
	if len(failures) > 0 {
		return fmt.Errorf("the program file could not be run %d times of %d: %s", len(failures), runs, failures[0])
	}
	if !slices.Equal(answers, []string{v0, v1, v2, v1, v2, v1, v3, v1, v5, v1, v5}) {
		return fmt.Errorf("\"firewall-controller -v\", run all the time, said %v", answers)
	}
	d.ok("\"firewall-controller -v\", run %d times: not found or not executable: %d, ended badly: %d", runs, len(failures), crashes)
	d.ok("and it answered %s", strings.Join(answers, ", then "))
	return nil
}

// reports waits until the service runs a process that is not old and that says of
// itself, in its log and in its status, that it is the version; and until the path
// holds that release, byte by byte. It returns the pid.
func (d *demo) reports(ctx context.Context, version string, old int) (pid int, err error) {
	err = eventually(ctx, "a new process reports "+version, func() error {
		p := d.service.now()
		st, err := d.readStatus()
		switch {
		case p.exited || p.pid == old:
			return errors.New("no new process")
		case err != nil:
			return err
		case st.PID != p.pid || st.ActualVersion != version:
			return fmt.Errorf("the status is by pid %d, %s", st.PID, st.ActualVersion)
		case !p.logged("starting version=" + version):
			return fmt.Errorf("pid %d has not logged its start as %s", p.pid, version)
		}
		pid = p.pid
		return nil
	})
	if err != nil {
		return 0, err
	}
	said, err := d.asks(ctx)
	if err == nil && said != version {
		err = fmt.Errorf("-v says %q, not %s", said, version)
	}
	if err != nil {
		return 0, err
	}
	sum, err := d.digest()
	if err == nil && sum != d.releases[version].sha256 {
		err = fmt.Errorf("the program file is %s, not %s", sum, version)
	}
	return pid, err
}

// replacedBy waits until the process old has left with 0, of its own accord or since
// the guard's tick was quicker to see that a restart is due, and a new one reports the
// version.
func (d *demo) replacedBy(ctx context.Context, version string, old int) (int, error) {
	pid, err := d.reports(ctx, version, old)
	if err != nil {
		return 0, err
	}
	if p := d.service.find(old); p.exit != "exit status 0" || !p.logged("leaving") && !p.told {
		return 0, fmt.Errorf("pid %d did not leave: %s", old, p.exit)
	}
	d.ok("pid %d left with 0; pid %d says in its log, its status and by -v that it is %s", old, pid, version)
	return pid, nil
}

// goesOn waits for more reconciles of the same process.
func (d *demo) goesOn(ctx context.Context, pid, more int) error {
	first, err := d.readStatus()
	if err != nil {
		return err
	}
	return eventually(ctx, fmt.Sprintf("%d more reconciles", more), func() error {
		st, err := d.readStatus()
		if err != nil {
			return err
		}
		if st.PID != pid || d.service.now().pid != pid {
			return fmt.Errorf("pid %d is not at work any more", pid)
		}
		if st.Reconciles < first.Reconciles+more {
			return fmt.Errorf("only %d", st.Reconciles-first.Reconciles)
		}
		return nil
	})
}
