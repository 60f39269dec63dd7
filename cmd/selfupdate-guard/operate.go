package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/cmd/internal/operate"
	"github.com/metal-stack/selfreconcile/internal/shell"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

func (e *env) confirmCommand() *command {
	var from string
	var opts selfupdate.ConfirmOptions
	c := e.command("confirm", "say that the program on trial works: it stays")
	c.forms = []string{"confirm --target PATH [--from VERSION|DIGEST] [--force]"}
	c.about = "Ends the trial for good, as the program does itself when it has seen that it works. Nothing goes back by itself after that. " +
		"A program that is not running, or has not got far enough in this start, is refused."
	c.flags.StringVar(&from, "from", "", "only if this is on trial, by `VERSION|DIGEST`: a trial may just have ended by itself")
	c.flags.BoolVar(&opts.Force, "force", false, "also if the program is not running")
	c.example = "selfupdate-guard confirm --target /usr/local/bin/firewall-controller --from v2.5.1"
	c.run = func(ctx context.Context, args []string) error {
		if err := noArguments(args); err != nil {
			return err
		}
		before, err := selfupdate.ReadStatus(e.target, nil)
		if err != nil {
			return err
		}
		if opts.From, err = operate.From(before, from); err != nil {
			return err
		}
		h, err := selfupdate.NewHelper(e.target, e.log())
		if err != nil {
			return err
		}
		if err := h.Confirm(ctx, opts); err != nil {
			return operate.ExplainConfirm(err, e.target, from)
		}
		tr := before.Trial
		switch {
		case tr == nil && operate.Pending(before):
			return e.print("the program at " + e.target + " is well: that decides what to think of the version before it, see status\n")
		case tr == nil:
			return e.print("nothing to confirm: no version is on trial at " + e.target + nothingThere(before) + "\n")
		case !tr.AtTarget:
			return e.print("the trial is over: what is at " + e.target + " is not the version that was on trial\n")
		}
		return e.print(named(tr.Candidate.Version, tr.Candidate.SHA256.String()) + " is confirmed: it stays\n")
	}
	return c
}

func (e *env) rollbackCommand() *command {
	var r restart
	var from string
	var opts selfupdate.RollbackOptions
	c := e.command("rollback", "put the program before back now")
	c.forms = []string{"rollback --target PATH [--from VERSION|DIGEST] [--reason TEXT] [--keep-allowed]", "rollback ... [--restart-unit NAME | --restart-command COMMAND]"}
	c.about = "Puts the previous program back in one step, from this machine's disk, verified. The version that is left, on trial or " +
		"confirmed, is rejected: no update installs it again until \"selfupdate-guard clear\" allows it. Run again, it goes back further: with --from it only leaves the version that you mean.\n\n" +
		"The service is restarted only when told how."
	c.flags.StringVar(&opts.Reason, "reason", "", "`TEXT` for the record and for people")
	c.flags.StringVar(&from, "from", "", "only if this is what would be left, by `VERSION|DIGEST`: a trial may just have ended by itself")
	c.flags.BoolVar(&opts.KeepAllowed, "keep-allowed", false, "leave the version installable: the next update may bring it back")
	c.flags.BoolVar(&opts.KeepAllowed, "no-reject", false, "the same as --keep-allowed")
	r.define(c.flags)
	c.example = "selfupdate-guard rollback --target /usr/local/bin/firewall-controller \\\n" +
		"  --from v2.5.1 --reason \"drops packets\" --restart-unit firewall-controller"
	c.run = func(ctx context.Context, args []string) error {
		if err := cmp.Or(noArguments(args), r.check(false)); err != nil {
			return err
		}
		return e.rollback(ctx, opts, from, r)
	}
	return c
}

// rollback goes back. A restart that fails stays recorded, and the next tick does it.
func (e *env) rollback(ctx context.Context, opts selfupdate.RollbackOptions, from string, r restart) error {
	before, err := selfupdate.ReadStatus(e.target, nil)
	if err == nil {
		opts.From, err = operate.From(before, from)
	}
	if err != nil && from != "" {
		return err
	}
	cfg := selfupdate.Config{Target: e.target, Log: e.log(), Trust: selfupdate.UnsignedChecksum("going back fetches nothing")}
	var failed error
	if r.given() {
		cfg.Restart = func(ctx context.Context) error {
			failed = e.restart(ctx, r)
			return failed
		}
	}
	u, err := selfupdate.New(cfg)
	if err != nil {
		return err
	}
	res, err := u.Rollback(ctx, opts)
	if err != nil && (failed == nil || res.Outcome != selfupdate.RolledBack) {
		return operate.Explain(err, e.target, from)
	}
	text := fmt.Sprintf("%s is %s again\n", e.target, named(res.Version, res.SHA256.String()))
	if left := operate.Left(before); left != nil && !opts.KeepAllowed && !left.SHA256.Equal(res.SHA256) {
		text += fmt.Sprintf("%s is rejected; to allow it again: %s\n", cmp.Or(left.Version, "what was there"), e.clearing(left.SHA256))
	}
	switch {
	case failed != nil:
		return cmp.Or(e.print(text), fmt.Errorf("the restart failed: %v; do it now: %s", failed, r))
	case r.given():
		return e.print(text + "restarted: " + r.String() + "\n")
	}
	return e.print(text + "the service still runs the other file: restart it now\n")
}

// nothingThere tells that a path may be a wrong one.
func nothingThere(st selfupdate.Status) string {
	if st.Phase == "empty" {
		return ", and nothing is installed there: check --target"
	}
	return ""
}

func (e *env) clearing(d checksum.Digest) string {
	return "selfupdate-guard clear --target " + shell.Word(e.target) + " " + d.String()
}

func (e *env) clearCommand() *command {
	opts := selfupdate.ClearOptions{}
	c := e.command("clear", "allow a rejected version again")
	c.forms = []string{"clear --target PATH [DIGEST | --all]"}
	c.about = "Lifts a rejection, so that an update may install that version again. Nothing is installed by this. " +
		"DIGEST is sha256:HEX or sha512:HEX as \"selfupdate-guard status\" shows it; without it the only rejection there is gets lifted."
	c.flags.BoolVar(&opts.All, "all", false, "lift every rejection")
	c.example = "selfupdate-guard clear --target /usr/local/bin/firewall-controller --all"
	c.run = func(ctx context.Context, args []string) error {
		switch {
		case len(args) > 1:
			return usagef("unexpected argument %q: at most one digest", args[1])
		case len(args) == 1 && opts.All:
			return usagef("a digest or --all, not both")
		case len(args) == 1:
			d, err := checksum.ParseDigest(args[0])
			if err != nil {
				return usagef("%q is no digest (sha256:HEX or sha512:HEX, as status shows it): %v", args[0], err)
			}
			opts.Digest = d
		}
		opts.Target, opts.Log = e.target, e.log()
		return e.clear(ctx, opts)
	}
	return c
}

func (e *env) clear(ctx context.Context, opts selfupdate.ClearOptions) error {
	st, err := selfupdate.ReadStatus(e.target, nil)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, j := range st.Rejected {
		fmt.Fprintf(&list, "\n  %s  # %s, %s", e.clearing(j.SHA256), cmp.Or(j.Version, "version unknown"), j.Verdict)
	}
	if !opts.All && opts.Digest.IsZero() {
		switch len(st.Rejected) {
		case 0:
			return e.print("nothing to do: nothing is rejected at " + e.target + nothingThere(st) + "\n")
		case 1:
			opts.Digest = st.Rejected[0].SHA256
		default:
			return usagef("%d versions are rejected, so say which, or --all:%s", len(st.Rejected), list.String())
		}
	}
	lifted, err := selfupdate.Clear(ctx, opts)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, j := range lifted {
		fmt.Fprintf(&b, "%s may be installed again\n", named(j.Version, j.SHA256.String()))
	}
	switch {
	case len(lifted) > 0:
	case len(st.Rejected) > 0:
		fmt.Fprintf(&b, "nothing to do: %s is not rejected; rejected are:%s\n", opts.Digest, list.String())
	default:
		fmt.Fprintf(&b, "nothing to do: nothing is rejected at %s%s\n", e.target, nothingThere(st))
	}
	return e.print(b.String())
}
