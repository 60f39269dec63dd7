package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/metal-stack/selfreconcile/cmd/internal/operate"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

func rollbackCommand(e *env) *command {
	var opts selfupdate.RollbackOptions
	var from string
	c := &command{
		name: "rollback", summary: "put the program before the current one back",
		forms: []string{"rollback --target PATH [--from VERSION|DIGEST] [--no-reject] [--reason TEXT]"},
		about: "Puts the previous program back in one step, from this machine's disk, verified; it needs no network, and the " +
			"current program may be broken or gone. The digest that is left is rejected: no update installs it again until " +
			"\"selfupdate clear\" allows it. Run again, it goes back further: with --from it only leaves the version that you mean. It also ends a trial, for the program before it.\n\n" +
			"A running program is not restarted.",
		flags: e.newFlags("rollback"),
		order: append([]string{"Flags:", "target", "from", "no-reject", "keep-allowed", "reason"}, shared[:]...),
		example: "selfupdate rollback --target /usr/local/bin/firewall-controller --from v2.5.1 \\\n  --reason \"drops packets\"\n" +
			"systemctl restart firewall-controller",
	}
	c.flags.StringVar(&opts.Target, "target", "", "`PATH` of the program (required)")
	c.flags.BoolVar(&opts.KeepAllowed, "no-reject", false, "leave the current version installable: the next update may bring it back")
	c.flags.BoolVar(&opts.KeepAllowed, "keep-allowed", false, "the same as --no-reject")
	c.flags.StringVar(&from, "from", "", "only if this is what would be left, by `VERSION|DIGEST`: a trial may just have ended by itself (default whatever is there)")
	c.flags.StringVar(&opts.Reason, "reason", "", "`TEXT` for the record and for people (default none)")
	c.run = func(ctx context.Context, args []string) error {
		if err := noArguments(args); err != nil {
			return err
		}
		if err := e.needTarget(opts.Target); err != nil {
			return err
		}
		e.changes = true
		return rollback(ctx, e, opts, from)
	}
	return c
}

// outcome is a result with the target that it is about.
type outcome struct {
	selfupdate.Result
	Target string `json:"target"`
}

func rollback(ctx context.Context, e *env, opts selfupdate.RollbackOptions, from string) error {
	opts.Log = e.log()
	before, err := selfupdate.ReadStatus(opts.Target, nil)
	if err == nil {
		opts.From, err = operate.From(before, from)
	}
	if err != nil && from != "" {
		return err
	}
	res, err := selfupdate.Rollback(ctx, opts)
	if err != nil {
		return operate.Explain(err, opts.Target, from)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "rolled back %s to %s\n", e.target, program(res.Version, res.SHA256.String()))
	left := operate.Left(before)
	switch {
	case left == nil || left.SHA256.Equal(res.SHA256): // what was gone is there again
	case opts.KeepAllowed:
		fmt.Fprintf(&b, "%s stays installable\n", program(left.Version, left.SHA256.String()))
	default:
		fmt.Fprintf(&b, "%s is rejected; to allow it again: %s\n", or(left.Version, "what was there"), e.clearCommand(selfupdate.Rejection{SHA256: left.SHA256}))
	}
	b.WriteString("a program that is running is not restarted: do that yourself\n")
	return e.result(outcome{res, e.target}, b.String())
}

// program names a program for people.
func program(version, digest string) string {
	if version == "" {
		return digest
	}
	return version + " (" + digest + ")"
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
