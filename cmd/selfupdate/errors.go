package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"strings"
	"syscall"
	"unicode"

	"github.com/metal-stack/selfreconcile/internal/shell"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// The exit codes.
const (
	exitDone      = 0
	exitTemporary = 1
	exitUsage     = 2
	exitRefused   = 3
	exitLocal     = 4
)

// usageError is a wrong argument.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// refused marks a plan that Apply would refuse; it is printed already.
type refused struct{ err error }

func (e *refused) Error() string { return e.err.Error() }
func (e *refused) Unwrap() error { return e.err }

// exitCode returns the tool's exit code for err. What has no class is a wrong
// argument, unless it is the end of the context, the network's or the system's.
func exitCode(err error) int {
	var usage *usageError
	var output *outputError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &output):
		return exitLocal
	}
	switch selfupdate.ClassOf(err) {
	case selfupdate.Temporary:
		return exitTemporary
	case selfupdate.Refused:
		return exitRefused
	case selfupdate.Local:
		return exitLocal
	}
	var request *url.Error
	var network *net.OpError
	var path *fs.PathError
	var errno syscall.Errno
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return exitTemporary
	case errors.As(err, &request), errors.As(err, &network): // before the errno in it
		return exitTemporary
	case errors.As(err, &path), errors.As(err, &errno):
		return exitLocal
	}
	return exitUsage
}

// failure is an error as JSON.
type failure struct {
	Error  string `json:"error"`
	Class  string `json:"class"`           // temporary | usage | refused | local
	State  string `json:"state,omitempty"` // of the target: unchanged | replaced | restored
	Advice string `json:"advice,omitempty"`
}

var classNames = [...]string{exitTemporary: "temporary", exitUsage: "usage", exitRefused: "refused", exitLocal: "local"}

// report says what went wrong and returns the exit code.
func (e *env) report(err error) int {
	code := exitCode(err)
	if code == exitDone {
		return code
	}
	f := failure{Error: oneLine(err), Class: classNames[code], State: e.state(err)}
	if code != exitUsage {
		f.Advice = e.advise.about(err, e)
	}
	var done *refused
	if e.json && !errors.As(err, &done) {
		_ = e.printJSON(f) // standard error says it too
	}
	text := e.name() + ": " + f.Error + "\n"
	if next := e.next(err, f); next != "" {
		text += next + "\n"
	}
	_, _ = fmt.Fprint(e.stderr, printable(text))
	return code
}

// name is what the person typed, without flags.
func (e *env) name() string { return strings.TrimSpace("selfupdate " + e.command) }

// next is the second line of a report: what is on disk now, and what to do.
func (e *env) next(err error, f failure) string {
	var output *outputError
	switch {
	case f.Class == classNames[exitUsage]:
		return "see " + e.name() + " --help"
	case errors.As(err, &output) && e.changes:
		return "only this report failed; what was done shows selfupdate status --target " + shell.Word(e.target)
	}
	return sentence(e.stateText(f.State), f.Advice)
}

func sentence(parts ...string) string {
	var s []string
	for _, p := range parts {
		if p != "" {
			s = append(s, p)
		}
	}
	return strings.Join(s, "; ")
}

// state returns what is at the target after err; "" when that is not to be said.
func (e *env) state(err error) string {
	var usage *usageError
	var output *outputError
	var failed *selfupdate.Error
	switch {
	case !e.changes, errors.As(err, &usage), errors.As(err, &output):
		return ""
	case errors.As(err, &failed) && failed.State == selfupdate.Replaced:
		return "replaced"
	case errors.As(err, &failed) && failed.State == selfupdate.Restored:
		return "restored"
	}
	return "unchanged"
}

func (e *env) stateText(state string) string {
	switch state {
	case "unchanged":
		return e.target + " is unchanged"
	case "replaced":
		return e.target + " is the new program, only a later step failed: run this again"
	case "restored":
		return e.target + " is the previous program, only a later step failed: run this again"
	}
	return ""
}

// oneLine is the text of err on one line; that of wrong usage may list something.
func oneLine(err error) string {
	var usage *usageError
	if errors.As(err, &usage) {
		return printable(usage.text)
	}
	s := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	if errors.Is(err, context.Canceled) {
		s = "interrupted: " + s
	}
	return printable(s)
}

// printable replaces what a terminal could take for a command: names and texts
// come from servers and from other people's records.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
