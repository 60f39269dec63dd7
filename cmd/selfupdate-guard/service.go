package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// preTime is how long pre may take. It is less than systemd's TimeoutStartSec=90,
// which also ends an ExecStartPre= with "-", and the start with it.
const preTime = 60 * time.Second

func (e *env) preCommand() *command {
	c := e.command("pre", "before every start of the program (ExecStartPre=)")
	c.unfailing = true
	c.forms = []string{"pre --target PATH"}
	c.about = "Counts the start of a program that is on trial; after too many, or after the deadline, puts the program before back. " +
		"Finishes a switch that a power cut undid. Without a trial it reads one small file and says nothing.\n\n" +
		"It never stops the service from starting: it exits 0 whatever is wrong, and after " + short(preTime) + " at the latest."
	c.example = "ExecStartPre=-/usr/local/bin/selfupdate-guard pre --target /usr/local/bin/firewall-controller"
	c.run = func(ctx context.Context, args []string) error {
		if err := noArguments(args); err != nil {
			return err
		}
		return e.startOf(ctx)
	}
	return c
}

// startOf runs Pre, and gives up waiting for it when the disk does not answer.
func (e *env) startOf(ctx context.Context) error {
	type result struct {
		s   selfupdate.Start
		err error
	}
	done := make(chan result, 1)
	go func() { // ends with the process at the latest
		var r result
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("a fault in this tool: %v", p)
			}
			done <- r
		}()
		r.s, r.err = e.pre(ctx, e.target, e.log())
	}()
	select {
	case r := <-done:
		if text := preText(r.s); text != "" {
			e.notef("%s", text)
		}
		if r.err != nil && strings.Contains(r.s.Reason, r.err.Error()) {
			return nil // said
		}
		if _, err := os.Stat(e.target); r.err == nil && errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s", selfupdate.ErrNoTarget, e.target)
		}
		return r.err
	case <-time.After(e.preTime):
		return fmt.Errorf("not done within %s: what is at the target starts", short(e.preTime))
	}
}

func pre(ctx context.Context, target string, log *slog.Logger) (selfupdate.Start, error) {
	h, err := selfupdate.NewHelper(target, log)
	if err != nil {
		return selfupdate.Start{}, err
	}
	return h.Pre(ctx)
}

// preText is a line for the journal; "" when there is nothing to say.
func preText(s selfupdate.Start) string {
	what := cmp.Or(s.Version, "the program")
	switch {
	case s.RolledBack:
		return strings.TrimSuffix("went back to "+cmp.Or(s.Version, "the program before")+": "+s.Reason, ": ")
	case s.OnTrial && s.Reason != "":
		return what + " is on trial: " + s.Reason
	case s.OnTrial:
		return fmt.Sprintf("%s is on trial: %s to confirm, then %s", what, short(s.Deadline), more(s.Left, "start"))
	case s.Reason != "":
		return what + " starts: " + s.Reason
	}
	return ""
}

func (e *env) postCommand() *command {
	var orderly bool
	var res string
	c := e.command("post", "after every end of the program (ExecStopPost=)")
	c.unfailing = true
	c.forms = []string{"post --target PATH", "post --target PATH --orderly", "post --target PATH --result TEXT"}
	c.about = "Records how a start of a program on trial ended, as systemd tells it in SERVICE_RESULT, EXIT_CODE and EXIT_STATUS " +
		"(systemd.exec(5)). An orderly end does not count against the program, as often as the trial has starts.\n\n" +
		"Other supervisors say it by a flag. It exits 0 whatever is wrong."
	c.flags.BoolVar(&orderly, "orderly", false, "the program was told to stop, and did")
	c.flags.StringVar(&res, "result", "", "how it ended, for people, such as \"signal SEGV\"; \"timeout\" and \"watchdog\" say that it did not answer, \"signal KILL\" and \"oom-kill\" that somebody else ended it")
	c.example = "ExecStopPost=-/usr/local/bin/selfupdate-guard post --target /usr/local/bin/firewall-controller"
	c.run = func(ctx context.Context, args []string) error {
		if err := noArguments(args); err != nil {
			return err
		}
		end, known := endingOf(e.getenv("SERVICE_RESULT"), e.getenv("EXIT_CODE"), e.getenv("EXIT_STATUS"))
		switch {
		case orderly && res != "":
			return usagef("--orderly or --result, not both")
		case orderly:
			end, known = selfupdate.Ending{Orderly: true}, true
		case res != "":
			end, known = selfupdate.Ending{Hung: hung(res), Killed: killed(res), Detail: res}, true
		}
		if !known {
			e.notef("SERVICE_RESULT is not set: this is not a unit's ExecStopPost=, and nothing was done (other supervisors: --orderly, --result)")
			return nil
		}
		h, err := selfupdate.NewHelper(e.target, e.log())
		if err != nil {
			return err
		}
		return h.Post(ctx, end)
	}
	return c
}

// endingOf reads what systemd.exec(5) says of ExecStopPost=. That it could not be
// executed (203) is only a name for people: a wrapper such as "ip vrf exec" hides it.
func endingOf(result, code, status string) (end selfupdate.Ending, known bool) {
	switch {
	case result == "":
		return end, false
	case result == "success":
		return selfupdate.Ending{Orderly: true}, true
	}
	end.Hung = hung(result)
	end.NotExecuted = code == "exited" && (status == "203" || status == "EXEC" || status == "203/EXEC")
	switch {
	case result == "exit-code" || result == "signal" || result == "core-dump":
		end.Detail = result + " " + status
	case code != "" && status != "":
		end.Detail = result + ", " + code + " " + status
	default:
		end.Detail = result
	}
	end.Killed = killed(result) || killed(end.Detail)
	return end, true
}

// killed tells an end that the machine or somebody on it made: memory was short.
func killed(result string) bool { return slices.Contains([]string{"oom-kill", "signal KILL"}, result) }

func hung(result string) bool { return slices.Contains([]string{"timeout", "watchdog"}, result) }

func (e *env) tickCommand() *command {
	var r restart
	var every time.Duration
	c := e.command("tick", "end a trial whose time is over (a timer, every 30 s)")
	c.forms = []string{"tick --target PATH (--restart-unit NAME | --restart-command COMMAND) [--every 10s]"}
	c.about = "Puts the program before back when the one on trial did not confirm itself in time, and restarts the service. A restart that " +
		"did not work is tried again by the next tick. Otherwise it reads one small file and says nothing.\n\n" +
		"With --every it goes on until SIGTERM or SIGINT: a watchdog for machines without timers."
	r.define(c.flags)
	c.flags.DurationVar(&every, "every", 0, "check again after this `DURATION`, until SIGTERM or SIGINT (default: once)")
	c.example = "selfupdate-guard tick --target /usr/local/bin/firewall-controller --restart-unit firewall-controller"
	c.run = func(ctx context.Context, args []string) error {
		if err := cmp.Or(noArguments(args), r.check(true)); err != nil {
			return err
		}
		switch {
		case every < 0:
			return usagef("--every: more than 0, such as 10s")
		case every == 0:
			return e.tick(ctx, r)
		}
		e.tickEvery(ctx, r, every)
		return nil
	}
	return c
}

// tick does it once.
func (e *env) tick(ctx context.Context, r restart) error {
	h, err := selfupdate.NewHelper(e.target, e.log())
	if err != nil {
		return err
	}
	check, err := h.Tick(ctx)
	if !check.Restart {
		return err
	}
	e.notef("restarting: %s", check.Reason)
	if rerr := e.restart(ctx, r); rerr != nil {
		return errors.Join(fmt.Errorf("restart, tried again by the next tick: %w", rerr), err)
	}
	return errors.Join(err, h.Restarted(ctx))
}

// tickEvery does it until ctx ends. What stays wrong is said once.
func (e *env) tickEvery(ctx context.Context, r restart, every time.Duration) {
	said := ""
	for {
		err := e.tick(ctx, r)
		e.sayNotes()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			said = ""
		} else if err.Error() != said {
			said = err.Error()
			e.report("tick", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}
