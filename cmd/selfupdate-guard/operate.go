package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

func (e *env) confirmCommand() *command {
	c := e.command("confirm", "say that the program on trial works: it stays")
	c.forms = []string{"confirm --target PATH"}
	c.about = "Ends the trial for good, as the program does itself when it has seen that it works. Nothing goes back by itself after that."
	c.example = "selfupdate-guard confirm --target /usr/local/bin/firewall-controller"
	c.run = func(ctx context.Context, args []string) error {
		if err := noArguments(args); err != nil {
			return err
		}
		before, err := selfupdate.ReadStatus(e.target, nil)
		if err != nil {
			return err
		}
		h, err := selfupdate.NewHelper(e.target, e.log)
		if err != nil {
			return err
		}
		if err := h.Confirm(ctx, selfupdate.ConfirmOptions{}); err != nil {
			return err
		}
		tr := before.Trial
		switch {
		case tr == nil && slices.ContainsFunc(before.Rejected, func(j selfupdate.Rejection) bool { return j.Verdict == "pending" }):
			return e.print("the program at " + e.target + " is well: that decides what to think of the version before it, see status\n")
		case tr == nil:
			return e.print("nothing to confirm: no version is on trial\n")
		case !tr.AtTarget:
			return e.print("the trial is over: what is at " + e.target + " is not the version that was on trial\n")
		}
		return e.print(named(tr.Candidate.Version, tr.Candidate.SHA256.String()) + " is confirmed: it stays\n")
	}
	return c
}

func (e *env) rollbackCommand() *command {
	var r restart
	var opts selfupdate.RollbackOptions
	c := e.command("rollback", "put the program before back now")
	c.forms = []string{"rollback --target PATH [--reason TEXT] [--keep-allowed] [--restart-unit NAME | --restart-command COMMAND]"}
	c.about = "Puts the previous program back in one step, from this machine's disk, verified. The version that is left, on trial or " +
		"confirmed, is rejected: no update installs it again until \"selfupdate-guard clear\" allows it. Run again, it goes back further.\n\n" +
		"The service is restarted only when told how."
	c.flags.StringVar(&opts.Reason, "reason", "", "`TEXT` for the record and for people")
	c.flags.BoolVar(&opts.KeepAllowed, "keep-allowed", false, "leave the version installable: the next update may bring it back")
	r.define(c.flags)
	c.example = "selfupdate-guard rollback --target /usr/local/bin/firewall-controller \\\n" +
		"  --reason \"drops packets\" --restart-unit firewall-controller"
	c.run = func(ctx context.Context, args []string) error {
		if err := cmp.Or(noArguments(args), r.check(false)); err != nil {
			return err
		}
		return e.rollback(ctx, opts, r)
	}
	return c
}

// rollback goes back. A restart that fails stays recorded, and the next tick does it.
func (e *env) rollback(ctx context.Context, opts selfupdate.RollbackOptions, r restart) error {
	before, _ := selfupdate.ReadStatus(e.target, nil)
	cfg := selfupdate.Config{Target: e.target, Log: e.log, Trust: selfupdate.UnsignedChecksum("going back fetches nothing")}
	if r.given() {
		cfg.Restart = func(ctx context.Context) error { return e.restart(ctx, r) }
	}
	u, err := selfupdate.New(cfg)
	if err != nil {
		return err
	}
	res, err := u.Rollback(ctx, opts)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s is %s again\n", e.target, named(res.Version, res.SHA256.String()))
	if left := leftBy(before); left != nil && !opts.KeepAllowed {
		text += fmt.Sprintf("%s is rejected; to allow it again: %s\n", cmp.Or(left.Version, "what was there"), e.clearing(left.SHA256))
	}
	if r.given() {
		return e.print(text + "restarted: " + r.String() + "\n")
	}
	return e.print(text + "the service still runs the other file: restart it now\n")
}

// leftBy returns the program that a rollback leaves.
func leftBy(st selfupdate.Status) *selfupdate.Program {
	if st.Trial != nil {
		return &st.Trial.Candidate
	}
	return st.Current
}

func (e *env) clearing(d checksum.Digest) string {
	return "selfupdate-guard clear --target " + quote(e.target) + " " + d.String()
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
				return usagef("%q is no digest (sha256:HEX or sha512:HEX): %v", args[0], err)
			}
			opts.Digest = d
		}
		opts.Target, opts.Log = e.target, e.log
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
			return e.print("nothing to do: nothing is rejected\n")
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
		b.WriteString("nothing to do: nothing is rejected\n")
	}
	return e.print(b.String())
}
