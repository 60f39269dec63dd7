package main

import (
	"context"
	"fmt"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/cmd/internal/operate"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

func confirmCommand(e *env) *command {
	var target, from string
	var opts selfupdate.ConfirmOptions
	c := &command{
		name: "confirm", summary: "say that a version on trial works, so that it stays",
		forms: []string{"confirm --target PATH [--from VERSION|DIGEST] [--force]"},
		about: "Ends the trial of the program at PATH well: nothing goes back by itself any more. It is for programs that " +
			"\"selfupdate apply --trial --confirmed-outside\" installed, and for whoever has seen that a program works which does " +
			"not say so itself. A program that is not running, or has not got far enough in this start, is refused.\n\n" +
			"Without a trial it tells that the current program works, which decides about a version that failed on trial before.",
		flags:   e.newFlags("confirm"),
		order:   append([]string{"Flags:", "target", "from", "force"}, shared[:]...),
		example: "selfupdate confirm --target /usr/local/bin/firewall-controller",
	}
	c.flags.StringVar(&target, "target", "", "`PATH` of the program (required)")
	c.flags.StringVar(&from, "from", "", "only if this is on trial, by `VERSION|DIGEST`: a trial may just have ended by itself (default whatever is there)")
	c.flags.BoolVar(&opts.Force, "force", false, "also if the program is not running")
	c.run = func(ctx context.Context, args []string) error {
		if err := noArguments(args); err != nil {
			return err
		}
		if err := e.needTarget(target); err != nil {
			return err
		}
		e.changes = true
		return confirm(ctx, e, opts, from)
	}
	return c
}

// confirmed is the result of the command.
type confirmed struct {
	Target    string          `json:"target"`
	Confirmed bool            `json:"confirmed"` // a trial ended well
	Version   string          `json:"version,omitempty"`
	SHA256    checksum.Digest `json:"sha256,omitzero"` // of the program that stays
}

func confirm(ctx context.Context, e *env, opts selfupdate.ConfirmOptions, from string) error {
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
	after, err := selfupdate.ReadStatus(e.target, nil)
	if err != nil {
		return err
	}
	c := confirmed{Target: e.target}
	if after.Current != nil {
		c.Version, c.SHA256 = after.Current.Version, after.Current.SHA256
	}
	switch {
	case before.Trial != nil:
	case operate.Pending(before):
		return e.result(c, fmt.Sprintf("the program at %s is well: that decides what to think of the version before it, see selfupdate status\n", e.target))
	case before.Phase == "empty":
		return e.result(c, fmt.Sprintf("nothing to do: no program is on trial at %s, and nothing is installed there: check --target\n", e.target))
	default:
		return e.result(c, fmt.Sprintf("nothing to do: no program is on trial at %s\n", e.target))
	}
	candidate := before.Trial.Candidate
	if c.Confirmed = candidate.SHA256.Equal(c.SHA256); c.Confirmed {
		return e.result(c, fmt.Sprintf("confirmed %s: %s stays\n", e.target, program(c.Version, c.SHA256.String())))
	}
	return e.result(c, fmt.Sprintf("the trial of %s is over: %s is %s\n", or(candidate.Version, "a new program"), e.target, program(c.Version, c.SHA256.String())))
}
