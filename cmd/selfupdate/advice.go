package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// advice is what a command's errors need for the clause about what to type next.
type advice struct {
	github bool // the release is looked for at GitHub
	token  bool // and there is a token
}

// about returns a clause on what to do about err; "" when its text says it.
func (a advice) about(err error, e *env) string {
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	switch {
	case is(context.Canceled):
		return ""
	case is(selfupdate.ErrRejected):
		return e.clearAdvice(err)
	case is(selfupdate.ErrPermission):
		return privileges(e.target)
	case is(selfupdate.ErrNoSpace):
		return "free some space in " + filepath.Dir(e.target)
	case is(selfupdate.ErrNoPrevious):
		return "there is no earlier program that this tool replaced; install a version with selfupdate apply"
	case is(selfupdate.ErrBusy):
		return "wait until the other update has ended"
	case is(selfupdate.ErrNoTarget):
		if e.command == "apply" {
			return "check --target, or install it for the first time with --create"
		}
		return "check --target"
	case is(selfupdate.ErrRecordFormat):
		return "use a newer selfupdate"
	case is(selfupdate.ErrNotFound):
		return a.notFound()
	case is(selfupdate.ErrLimited):
		return a.limited()
	case is(selfupdate.ErrNetwork):
		return "try again later"
	}
	return refusalAdvice(err, e.command)
}

// refusalAdvice names the flag that allows what was refused.
func refusalAdvice(err error, command string) string {
	if errors.Is(err, checksum.ErrBareDigest) {
		if command == "verify" {
			return "if this file belongs to one asset alone, call it ASSET.sha256; under another name with such an ending, add --name ASSET"
		}
		return "if this file belongs to one asset alone, publish it as ASSET.sha256"
	}
	if command != "apply" {
		return ""
	}
	for _, a := range []struct {
		err  error
		text string
	}{
		{selfupdate.ErrInsecure, "http:// lets anybody on the way change what you get: use https://, pin the file with --digest, or accept that with --allow-http"},
		{selfupdate.ErrManaged, "update it with that package manager, or insist with --managed-anyway"},
		{selfupdate.ErrDigestMismatch, "do not install this file: a cache may be stale, an upload broken, or somebody changed it"},
		{selfupdate.ErrNoChecksum, "name the right checksum file (--sums-url, with --github --sums), or pin the file with --digest"},
		{selfupdate.ErrFormat, "the asset must be the program itself, for this machine (archives are not unpacked); --allow-any-format installs it all the same"},
		{selfupdate.ErrOtherProgram, "if this is meant, --allow-other-program"},
		{selfupdate.ErrVersionMismatch, "if this is meant, --allow-other-program"},
		{selfupdate.ErrAsset, "name the asset with --asset"},
		{selfupdate.ErrTooLarge, "if it may be that large, raise --max-size"},
		{selfupdate.ErrResponse, "check the address"},
	} {
		if errors.Is(err, a.err) {
			return a.text
		}
	}
	return ""
}

func (a advice) notFound() string {
	if a.github {
		s := "check OWNER/REPO, --tag and --asset, or try again later: a new release's files may still be on their way"
		if !a.token {
			s += "; a private repository needs --token-file"
		}
		return s
	}
	return "check the URL, or try again later: a new release's files may still be on their way"
}

func (a advice) limited() string {
	switch {
	case a.github && !a.token:
		return "try again then, give a --token-file (a higher limit), or name --tag and --asset, which needs no API"
	default:
		return "try again then"
	}
}

// clearAdvice is the command that lifts the rejection that err is about.
func (e *env) clearAdvice(err error) string {
	st, serr := selfupdate.ReadStatus(e.target, nil)
	if serr != nil {
		return "see selfupdate status --target " + quote(e.target)
	}
	for _, r := range st.Rejected {
		if strings.Contains(err.Error(), r.SHA256.String()) || len(st.Rejected) == 1 {
			return "to allow it again: " + e.clearCommand(r)
		}
	}
	return "see selfupdate status --target " + quote(e.target)
}

func (e *env) clearCommand(r selfupdate.Rejection) string {
	return "selfupdate clear --target " + quote(e.target) + " " + r.SHA256.String()
}

func privileges(target string) string {
	switch {
	case os.Geteuid() == 0: // -1 on Windows
		return "root may not either: look for an immutable file (lsattr), a sandbox, or a security policy"
	case runtime.GOOS == "windows":
		return "run it as administrator, or as the owner of " + filepath.Dir(target)
	}
	return "run it with sudo, or as the owner of " + filepath.Dir(target)
}

// quote returns s as one word of a shell.
func quote(s string) string {
	plain := !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(`/._-+:@%,=\`, r) || r > 0x7f)
	})
	switch {
	case s != "" && plain && (runtime.GOOS == "windows" || !strings.Contains(s, `\`)):
		return s
	case runtime.GOOS == "windows":
		return `"` + s + `"`
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
