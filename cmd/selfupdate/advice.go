package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/metal-stack/selfreconcile/internal/shell"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// advice is what a command's errors need for the clause about what to type next.
type advice struct {
	github   bool // the release is looked for at GitHub
	token    bool // and there is a token
	plainAPI bool // and --api-url is http, which nothing allows
	pinned   bool // --digest or --key was given: http:// changes nothing
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
		if _, err := os.Lstat(e.target); errors.Is(err, fs.ErrNotExist) {
			return "no file is there either: check --target, or install a version with selfupdate apply --create"
		}
		return "there is no earlier program that can be put back; install a version with selfupdate apply"
	case is(selfupdate.ErrBusy):
		return "wait until the other update has ended; or, if that is a service's own: stop it, do this again, and start it"
	case is(selfupdate.ErrNoTarget):
		return e.noTargetAdvice()
	case is(selfupdate.ErrOnTrial):
		return "wait until that one has confirmed itself, or decide: selfupdate status --target " + shell.Word(e.target) + " says how"
	case is(selfupdate.ErrExpired):
		return "too late: restart the service, and the program before comes back; see selfupdate status --target " + shell.Word(e.target)
	case is(selfupdate.ErrRecordFormat):
		return "use a newer selfupdate, or go back by hand (docs/operations.md)"
	case is(selfupdate.ErrSignature): // another may be missing besides
		return a.refusal(err, e.command)
	case is(selfupdate.ErrNotFound):
		return a.notFound()
	case is(selfupdate.ErrLimited):
		return a.limited()
	case is(selfupdate.ErrNetwork):
		return "try again later; if it stays so, check the address"
	}
	return a.refusal(err, e.command)
}

// noTargetAdvice tells a path that is wrong from what stands in the way of a right one.
func (e *env) noTargetAdvice() string {
	fi, err := os.Lstat(e.target)
	switch {
	case err == nil && fi.Mode()&fs.ModeSymlink != 0:
		return "remove or repair the link"
	case e.command != "apply":
		return "check --target"
	}
	if _, err := os.Stat(filepath.Dir(e.target)); err != nil {
		return "check --target, or make its directory first"
	}
	return "check --target, or install it for the first time with --create"
}

// clearAdvice is the command that lifts the rejection that err is about.
func (e *env) clearAdvice(err error) string {
	st, serr := selfupdate.ReadStatus(e.target, nil)
	if serr != nil {
		return "see selfupdate status --target " + shell.Word(e.target)
	}
	for _, r := range st.Rejected {
		if strings.Contains(err.Error(), r.SHA256.String()) || len(st.Rejected) == 1 {
			return "to allow it again: " + e.clearCommand(r)
		}
	}
	return "see selfupdate status --target " + shell.Word(e.target)
}

func (e *env) clearCommand(r selfupdate.Rejection) string {
	return "selfupdate clear --target " + shell.Word(e.target) + " " + r.SHA256.String()
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
