package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/metal-stack/selfreconcile/cmd/internal/operate"
	"github.com/metal-stack/selfreconcile/internal/shell"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// The exit codes, those of cmd/selfupdate.
const (
	exitDone      = 0
	exitTemporary = 1
	exitUsage     = 2
	exitRefused   = 3
	exitLocal     = 4
)

// env is what a run of the tool has.
type env struct {
	stdout, stderr io.Writer
	getenv         func(string) string
	restart        func(ctx context.Context, r restart) error
	pre            func(ctx context.Context, target string, log *slog.Logger) (selfupdate.Start, error)
	preTime        time.Duration

	target string
	notes  *notes
}

func newEnv(stdout, stderr io.Writer, getenv func(string) string) *env {
	return &env{notes: &notes{}, stdout: stdout, stderr: stderr, getenv: getenv, restart: runRestart, pre: pre, preTime: preTime}
}

// log is for the library.
func (e *env) log() *slog.Logger { return slog.New(e.notes) }

// command is one subcommand.
type command struct {
	name, summary string
	forms         []string // without the tool's name
	about         string   // paragraphs
	example       string
	unfailing     bool // exits 0, whatever happens
	flags         *flag.FlagSet
	run           func(ctx context.Context, args []string) error
}

// commands returns all subcommands, in the order of the help.
func (e *env) commands() []*command {
	return []*command{
		e.preCommand(), e.postCommand(), e.tickCommand(),
		e.statusCommand(), e.confirmCommand(), e.rollbackCommand(), e.clearCommand(), e.versionCommand(),
	}
}

// command returns a subcommand that is about a target.
func (e *env) command(name, summary string) *command {
	c := &command{name: name, summary: summary, flags: flag.NewFlagSet(name, flag.ContinueOnError)}
	c.flags.SetOutput(io.Discard)
	c.flags.Usage = func() {}
	c.flags.StringVar(&e.target, "target", "", "`PATH` of the program (required)")
	return c
}

// run runs the tool and returns its exit code.
func (e *env) run(ctx context.Context, args []string) int {
	all := e.commands()
	if len(args) == 0 {
		return e.report("", usagef("no command: one of %s", names(all)))
	}
	name, args := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		return e.report("", e.help(all, args))
	case "-version", "--version":
		name = "version"
	}
	i := slices.IndexFunc(all, func(c *command) bool { return c.name == name })
	if i < 0 {
		return e.report("", usagef("unknown command %q: one of %s", name, names(all)))
	}
	err := e.execute(ctx, all[i], args)
	e.sayNotes()
	code := e.report(name, err)
	if all[i].unfailing {
		return exitDone
	}
	return code
}

func (e *env) execute(ctx context.Context, c *command, args []string) (err error) {
	if c.unfailing {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("a fault in this tool: %v", p)
			}
		}()
	}
	rest, err := parse(c.flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return e.print(c.help())
	case err != nil:
		return err
	case c.flags.Lookup("target") != nil && e.target == "":
		return usagef("--target PATH is missing: the program that this is about")
	}
	return c.run(ctx, rest)
}

func names(all []*command) string {
	var s []string
	for _, c := range all {
		s = append(s, c.name)
	}
	return strings.Join(s, ", ")
}

// parse reads flags and positional arguments in any order; after "--" all are
// positional.
func parse(fs *flag.FlagSet, args []string) (positional []string, err error) {
	for {
		if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
			return nil, err
		} else if err != nil {
			return nil, usagef("%s", flagError(operate.Wanted(fs, err.Error())))
		}
		rest := fs.Args()
		if len(rest) == 0 {
			return positional, nil
		}
		if read := len(args) - len(rest); read > 0 && args[read-1] == "--" {
			return append(positional, rest...), nil
		}
		positional, args = append(positional, rest[0]), rest[1:]
	}
}

// flagError turns the texts of package flag into those of this tool's help.
func flagError(text string) string {
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		return "unknown flag " + dashed(name)
	}
	return strings.NewReplacer("flag needs an argument: -", "no value for --", "for flag -o:", "for -o:", " -", " --").Replace(text)
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func noArguments(args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}

// usageError is a wrong argument.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// exitCode returns the tool's exit code for err. What has no class is temporary,
// such as a restart that did not work, unless it is the system's.
func exitCode(err error) int {
	var usage *usageError
	var path *fs.PathError
	var errno syscall.Errno
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage):
		return exitUsage
	}
	switch selfupdate.ClassOf(err) {
	case selfupdate.Refused:
		return exitRefused
	case selfupdate.Local:
		return exitLocal
	case selfupdate.Temporary:
		return exitTemporary
	}
	if errors.As(err, &path) || errors.As(err, &errno) {
		return exitLocal
	}
	return exitTemporary
}

// report says what went wrong and returns the exit code.
func (e *env) report(command string, err error) int {
	code := exitCode(err)
	if code == exitDone {
		return code
	}
	name := strings.TrimSpace("selfupdate-guard " + command)
	text := name + ": " + strings.TrimSpace(err.Error())
	if code != exitUsage { // which may list something
		text = strings.ReplaceAll(text, "\n", "; ")
	}
	if advice := e.advice(err); advice != "" {
		text += "; " + advice
	}
	if code == exitUsage {
		text += "\nsee " + name + " --help"
	}
	e.note(text)
	return code
}

// advice is what to do about an error whose text does not say it.
func (e *env) advice(err error) string {
	switch {
	case errors.Is(err, selfupdate.ErrExpired):
		return "see selfupdate-guard status --target " + shell.Word(e.target)
	case errors.Is(err, selfupdate.ErrNoPrevious):
		if _, err := os.Lstat(e.target); errors.Is(err, fs.ErrNotExist) {
			return "no file is at " + e.target + " either: check --target, or install a version with selfupdate apply --create"
		}
		return "there is no earlier program on this machine: install a version with selfupdate apply"
	case errors.Is(err, selfupdate.ErrBusy):
		return "wait until the update has ended; or stop its service, do this again, and start it"
	case errors.Is(err, selfupdate.ErrRecordFormat):
		return "use a newer selfupdate-guard, or go back by hand (docs/operations.md)"
	case errors.Is(err, selfupdate.ErrPermission):
		return "run it as root, or as the owner of the directory; a unit with ProtectSystem= needs ReadWritePaths="
	case errors.Is(err, selfupdate.ErrNoTarget):
		return "check --target"
	}
	return ""
}

// note writes a line for the journal or an operator to standard error.
func (e *env) note(text string) { _, _ = fmt.Fprintln(e.stderr, printable(text)) }

func (e *env) notef(format string, args ...any) {
	e.note("selfupdate-guard: " + fmt.Sprintf(format, args...))
}

// print writes a result to standard output.
func (e *env) print(text string) error {
	if _, err := io.WriteString(e.stdout, printable(text)); err != nil {
		return fmt.Errorf("write standard output: %w", err)
	}
	return nil
}

func (e *env) printJSON(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return e.print(string(b) + "\n")
}

// printable replaces what a terminal could take for a command: versions and
// reasons come from other people.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// short is a duration for people.
func short(d time.Duration) string {
	if d >= 10*time.Second {
		d = d.Round(time.Second)
	} else {
		d = d.Round(100 * time.Millisecond)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// named is a program for people.
func named(version, digest string) string {
	if version == "" {
		return digest
	}
	return version
}
