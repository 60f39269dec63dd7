package main

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// restart is how the service is restarted.
type restart struct {
	unit, command string
	within        time.Duration
}

func (r *restart) define(fs *flag.FlagSet) {
	fs.StringVar(&r.unit, "restart-unit", "", "restart the systemd unit `NAME`")
	fs.StringVar(&r.command, "restart-command", "", "restart by this `COMMAND` of a shell")
	fs.DurationVar(&r.within, "restart-timeout", 4*time.Minute, "give up a restart after this `DURATION`; longer than the unit's TimeoutStopSec=, TimeoutStartSec= and a minute for pre")
}

// check refuses what systemctl would take for a flag or for several units.
func (r restart) check(required bool) error {
	odd := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(`:-_.\@`, c))
	}
	switch {
	case r.unit != "" && r.command != "":
		return usagef("--restart-unit or --restart-command, not both")
	case required && r.unit == "" && r.command == "":
		return usagef("how to restart is missing: --restart-unit NAME or --restart-command COMMAND")
	case strings.HasPrefix(r.unit, "-") || strings.ContainsFunc(r.unit, odd):
		return usagef("--restart-unit %q: not a unit's name", r.unit)
	case r.within <= 0:
		return usagef("--restart-timeout: more than 0, such as 4m")
	}
	return nil
}

func (r restart) given() bool { return r.unit != "" || r.command != "" }

func (r restart) String() string {
	if r.unit != "" {
		return "systemctl restart " + r.unit
	}
	return r.command
}

// runRestart restarts, and waits for the end of that.
func runRestart(ctx context.Context, r restart) error {
	ctx, cancel := context.WithTimeout(ctx, r.within)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", r.command)
	if r.unit != "" {
		cmd = exec.CommandContext(ctx, "systemctl", "restart", "--", r.unit)
	}
	cmd.WaitDelay = time.Second // what a shell leaves in the background may hold the output open
	out, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w after %s", r, ctx.Err(), short(r.within))
	case err != nil:
		const most = 300
		text := strings.TrimSpace(string(out[:min(len(out), most)]))
		if text == "" {
			return fmt.Errorf("%s: %w", r, err)
		}
		return fmt.Errorf("%s: %w: %s", r, err, strings.ReplaceAll(text, "\n", " "))
	}
	return nil
}
