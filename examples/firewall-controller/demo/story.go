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
	"strings"

	"github.com/metal-stack/selfreconcile/examples/firewall-controller/internal/firewall"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// story is what is shown, in order. Each step starts from what the one before it
// has made sure of.
func (d *demo) story() []step {
	return []step{
		{v0 + " is installed and does its work", d.works},
		{"The spec says " + v1 + ": replaced while running, restarted", d.updates},
		{"The spec says " + v2 + ", but what the server sends is corrupted: refused, work goes on", d.refuses},
		{"The server is repaired: " + v2 + " comes by itself", d.recovers},
		{"The operator goes back: " + v1 + " again, and " + v2 + " stays away", d.goesBack},
		{"The operator allows " + v2 + " again", d.clears},
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
	st, err := selfupdate.ReadStatus(d.target, nil)
	if err != nil {
		return err
	}
	if len(st.Previous) == 0 || st.Previous[0].SHA256.Hex() != d.releases[v0].sha256 {
		return fmt.Errorf("%s is not kept: %v", v0, st.Previous)
	}
	d.ok("%s is kept to go back to; requests: %v", v0, requests)
	d.table.row(v1, pid, "replaced "+v0+" while it ran", requests)
	return nil
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
	d.server.corrupt(v2)
	d.tell("server", "from now on one bit of %s is wrong; its .sha256 is the right one", v2)
	if err := d.change(v2, 2); err != nil {
		return err
	}
	if err := eventually(ctx, "the controller tells that it refused", func() error {
		e, err := d.event(firewall.UpdateRefused, pid)
		if err == nil && !strings.Contains(e.Message, "digest mismatch") {
			err = errors.New(e.Message)
		}
		return err
	}); err != nil {
		return err
	}
	d.ok("event UpdateRefused by pid %d", pid)
	if err := d.stillAtWork(ctx, pid, st.Reconciles); err != nil {
		return err
	}
	requests := d.server.asked().minus(before)
	if err := d.nothingLeft(ctx, files); err != nil {
		return err
	}
	d.ok("the %d files and directories in $DIR/bin are what they were, byte by byte", len(files))
	d.table.row(v1, pid, "refused a corrupted "+v2, requests)
	return nil
}

// stillAtWork waits for three more attempts, all in vain, by the same process,
// and for the rule that came with the same spec.
func (d *demo) stillAtWork(ctx context.Context, pid, reconciles int) error {
	if err := d.goesOn(ctx, pid, 3); err != nil {
		return err
	}
	now, err := d.readStatus()
	if err != nil {
		return err
	}
	if now.NextVersion != v2 || now.ActualVersion != v1 || now.RulesInForce != 2 || !strings.Contains(now.Message, "digest mismatch") {
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
	d.ok("its status says nextversion %s, and why it is not that", now.NextVersion)
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

func (d *demo) recovers(ctx context.Context) error {
	old := d.service.now().pid
	d.server.repair()
	before := d.server.asked()
	d.tell("server", "%s is what it should be from now on; nobody touches the firewall", v2)
	pid, err := d.replacedBy(ctx, v2, old)
	if err != nil {
		return err
	}
	d.table.row(v2, pid, "came once the server was repaired", d.server.asked().minus(before))
	return nil
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
		if err := eventually(ctx, "the controller tells it", func() error {
			_, err := d.event(reason, pid)
			return err
		}); err != nil {
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
	case now.NextVersion != v2 || len(now.Rejected) != 1 || now.Rejected[0].Version != v2:
		return fmt.Errorf("the status says %+v", now)
	}
	if same, err := os.ReadFile(d.spec); err != nil || !bytes.Equal(same, spec) {
		return fmt.Errorf("the spec was changed (%v)", err)
	}
	d.ok("events RolledBack and UpdateRejected by pid %d; the spec still says %s, untouched", pid, v2)
	d.ok("after %d reconciles it is still %s; requests: %v", now.Reconciles, now.ActualVersion, requests)
	d.table.row(v1, pid, "went back from "+v2+", which is rejected", requests)
	return nil
}

func (d *demo) clears(ctx context.Context) error {
	old, before := d.service.now().pid, d.server.asked()
	if err := d.operator(ctx, "clear", "--target", d.target); err != nil {
		return err
	}
	pid, err := d.replacedBy(ctx, v2, old)
	if err != nil {
		return err
	}
	d.table.row(v2, pid, "allowed again, installed", d.server.asked().minus(before))
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
	runs, answers, failures := d.poller.result()
	if len(failures) > 0 {
		return fmt.Errorf("the program file could not be run %d times of %d: %s", len(failures), runs, failures[0])
	}
	if !slices.Equal(answers, []string{v0, v1, v2, v1, v2}) {
		return fmt.Errorf("\"firewall-controller -v\", run all the time, said %v", answers)
	}
	d.ok("\"firewall-controller -v\", run all the while: %d runs, %d failures", runs, len(failures))
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

// replacedBy waits until the process old has left with 0 of its own accord and a
// new one reports the version.
func (d *demo) replacedBy(ctx context.Context, version string, old int) (int, error) {
	pid, err := d.reports(ctx, version, old)
	if err != nil {
		return 0, err
	}
	if p := d.service.find(old); p.exit != "exit status 0" || !p.logged("leaving") {
		return 0, fmt.Errorf("pid %d did not leave by itself: %s", old, p.exit)
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
