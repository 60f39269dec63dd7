package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/metal-stack/selfreconcile/cmd/internal/operate"
)

// env is what a run of the tool has: its streams, the flags that all commands
// share, and what is known for an error's advice.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	terminal       bool // stderr is one

	command        string
	json           bool
	quiet, verbose bool

	target  string // the program that the command is about; "" when about none
	changes bool   // the command may change the target, so that an error has a state
	advise  advice
}

// command is one subcommand. Its flags are bound to variables of the function
// that made it.
type command struct {
	name    string
	summary string   // one line, for the tool's help
	forms   []string // without the tool's name
	about   string   // paragraphs
	flags   *flag.FlagSet
	order   []string // of the flags in the help; an entry ending in ":" is a heading
	example string
	run     func(ctx context.Context, args []string) error
}

// commands returns all subcommands, in the order of the help.
func commands(e *env) []*command {
	return []*command{
		applyCommand(e), confirmCommand(e), rollbackCommand(e), clearCommand(e), statusCommand(e), verifyCommand(e), versionCommand(e),
	}
}

// run runs the tool and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	e := &env{stdin: stdin, stdout: stdout, stderr: stderr}
	if f, ok := stderr.(*os.File); ok {
		e.terminal = term.IsTerminal(int(f.Fd()))
	}
	err := e.dispatch(ctx, args)
	var usage *usageError
	if errors.As(err, &usage) { // reading the flags ended at the wrong one
		e.json = e.json || asksJSON(args)
	}
	return e.report(err)
}

// asksJSON reports whether the last -o or --json among the arguments says so.
func asksJSON(args []string) (asks bool) {
	for i, arg := range args {
		if arg == "--" {
			break
		}
		name, value, inline := strings.Cut(arg, "=")
		if name == "-json" || name == "--json" {
			asks = !inline || value == "true"
			continue
		}
		if name != "-o" && name != "--o" {
			continue
		}
		if !inline && i+1 < len(args) {
			value = args[i+1]
		}
		asks = value == "json"
	}
	return asks
}

func (e *env) dispatch(ctx context.Context, args []string) error {
	all := commands(e)
	if len(args) == 0 {
		return usagef("no command: one of %s", names(all))
	}
	name, args := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		return e.help(all, args)
	case "-version", "--version":
		name = "version"
	}
	i := slices.IndexFunc(all, func(c *command) bool { return c.name == name })
	if i < 0 {
		return usagef("unknown command %q: one of %s", name, names(all))
	}
	c := all[i]
	e.command = name
	positional, err := parse(c.flags, args)
	if errors.Is(err, flag.ErrHelp) {
		return e.print(c.help())
	}
	if err != nil {
		return err
	}
	return c.run(ctx, positional)
}

func names(all []*command) string {
	var s []string
	for _, c := range all {
		s = append(s, c.name)
	}
	return strings.Join(s, ", ")
}

func (e *env) help(all []*command, args []string) error {
	if len(args) == 0 {
		return e.print(toolHelp(all))
	}
	for _, c := range all {
		if c.name == args[0] {
			return e.print(c.help())
		}
	}
	return usagef("no help for %q: one of %s", args[0], names(all))
}

// parse reads flags and positional arguments in any order; after "--" all are
// positional.
func parse(fs *flag.FlagSet, args []string) (positional []string, err error) {
	for {
		if err := fs.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
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
		if strings.HasPrefix(name, "restart-") { // selfupdate-guard has them
			return dashed(name) + ": selfupdate restarts nothing: leave that out, and restart the service afterwards"
		}
		return "unknown flag " + dashed(name)
	}
	return flagTexts.Replace(text)
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

var flagTexts = strings.NewReplacer(
	"flag needs an argument: -", "no value for --",
	"for flag -o:", "for -o:",
	"for flag -", "for --",
	"for -", "for --", // boolean flags
)

// given returns the names of the flags that were set.
func given(fs *flag.FlagSet) map[string]bool {
	set := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { set[f.Name] = true })
	return set
}

// newFlags returns a command's flags with those that all commands share.
func (e *env) newFlags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	fs.Func("o", "`FORMAT` of the result and of an error on standard output: text or json (default text)", func(s string) error {
		if s != "text" && s != "json" {
			return errors.New("text or json")
		}
		e.json = s == "json"
		return nil
	})
	fs.BoolVar(&e.json, "json", false, "the same as -o json")
	fs.BoolVar(&e.quiet, "quiet", false, "no progress, and no text when all went well")
	fs.BoolVar(&e.verbose, "verbose", false, "log each step to standard error; then no progress is shown")
	return fs
}

// shared is the end of each command's flags in the help.
var shared = [...]string{"Output:", "o", "json", "quiet", "verbose"}

// needTarget checks what rollback, clear and status have in common with apply.
func (e *env) needTarget(target string) error {
	if target == "" {
		return usagef("--target PATH is missing: the program that this is about")
	}
	e.target = target
	return nil
}

func noArguments(args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}

// log returns the log for the library: nil is silent.
func (e *env) log() *slog.Logger {
	if !e.verbose {
		return nil
	}
	return slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// outputError: the work may well be done, but nobody can read of it.
type outputError struct{ err error }

func (e *outputError) Error() string { return fmt.Sprintf("write standard output: %v", e.err) }
func (e *outputError) Unwrap() error { return e.err }

// print writes text for a person to standard output.
func (e *env) print(text string) error {
	if _, err := io.WriteString(e.stdout, text); err != nil {
		return &outputError{err}
	}
	return nil
}

// result writes what a command found out or did: v as JSON, or text unless --quiet.
func (e *env) result(v any, text string) error {
	if e.json {
		return e.printJSON(v)
	}
	if e.quiet {
		return nil
	}
	return e.print(printable(text))
}

func (e *env) printJSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	return e.print(b.String())
}
