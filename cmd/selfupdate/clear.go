package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

func clearCommand(e *env) *command {
	var opts selfupdate.ClearOptions
	c := &command{
		name: "clear", summary: "allow a rejected version again",
		forms: []string{"clear --target PATH [DIGEST | --all]"},
		about: "Lifts the rejection of a digest, which \"selfupdate rollback\", a trial that failed or a probe left behind, so " +
			"that an update may install it again. Nothing is installed by this.\n\n" +
			"DIGEST is sha256:HEX or sha512:HEX as \"selfupdate status\" shows it. Without it the only rejection there is gets " +
			"lifted; of several none is, and they are listed.",
		flags:   e.newFlags("clear"),
		order:   append([]string{"Flags:", "target", "all"}, shared[:]...),
		example: "selfupdate clear --target /usr/local/bin/firewall-controller",
	}
	c.flags.StringVar(&opts.Target, "target", "", "`PATH` of the program (required)")
	c.flags.BoolVar(&opts.All, "all", false, "lift every rejection")
	c.run = func(ctx context.Context, args []string) error {
		if err := e.needTarget(opts.Target); err != nil {
			return err
		}
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
		return clearRejections(ctx, e, opts)
	}
	return c
}

// cleared is the result of the command.
type cleared struct {
	Target  string                 `json:"target"`
	Cleared []selfupdate.Rejection `json:"cleared"`
}

func clearRejections(ctx context.Context, e *env, opts selfupdate.ClearOptions) error {
	st, err := selfupdate.ReadStatus(opts.Target, nil)
	if err != nil {
		return err
	}
	if !opts.All && opts.Digest.IsZero() {
		switch len(st.Rejected) {
		case 0:
			return e.result(cleared{e.target, []selfupdate.Rejection{}}, e.clearText(st, opts, nil))
		case 1:
			opts.Digest = st.Rejected[0].SHA256
		default:
			return usagef("%d versions are rejected, so say which, or --all:%s", len(st.Rejected), e.listRejected(st))
		}
	}
	opts.Log = e.log()
	lifted, err := selfupdate.Clear(ctx, opts)
	if err != nil {
		return err
	}
	return e.result(cleared{e.target, append([]selfupdate.Rejection{}, lifted...)}, e.clearText(st, opts, lifted))
}

func (e *env) clearText(st selfupdate.Status, opts selfupdate.ClearOptions, lifted []selfupdate.Rejection) string {
	var b strings.Builder
	for _, r := range lifted {
		fmt.Fprintf(&b, "%s may be installed at %s again\n", program(r.Version, r.SHA256.String()), e.target)
	}
	if n := len(st.HeldBack); n > 0 && opts.All {
		fmt.Fprintf(&b, "downloads that were refused may be tried at once: %d\n", n)
	}
	switch {
	case len(lifted) > 0, b.Len() > 0:
	case len(st.Rejected) > 0:
		fmt.Fprintf(&b, "nothing to do: %s is not rejected at %s; rejected are:%s\n", opts.Digest, e.target, e.listRejected(st))
	case st.Phase == "empty":
		fmt.Fprintf(&b, "nothing to do: nothing is rejected at %s, and nothing is installed there: check --target\n", e.target)
	default:
		fmt.Fprintf(&b, "nothing to do: nothing is rejected at %s\n", e.target)
	}
	return b.String()
}

// listRejected is one indented line for each rejection, each after a line feed.
func (e *env) listRejected(st selfupdate.Status) string {
	var b strings.Builder
	for _, r := range st.Rejected {
		fmt.Fprintf(&b, "\n  %s  # %s", e.clearCommand(r), or(r.Version, "version unknown"))
		for _, s := range []string{verdict(r), r.Reason} {
			if s != "" {
				b.WriteString(", " + strings.ReplaceAll(s, "\n", " "))
			}
		}
	}
	return b.String()
}
