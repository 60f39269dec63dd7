package main

import (
	"flag"
	"fmt"
	"strings"
)

const exitCodes = `Exit codes:
  0  done, or nothing to do; always for pre and post
  1  temporary: the restart did not work: try again
  2  wrong usage
  3  refused: the trial is over, the program is not running, or is not that of --from
  4  local: permission, space, a missing or unreadable file, an update under way
`

const width = 88 // columns of a help text

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

func toolHelp(all []*command) string {
	var b strings.Builder
	b.WriteString("selfupdate-guard looks after a program on trial from outside: the version before comes\n" +
		"back when the new one does not prove itself.\n\nUsage:\n  selfupdate-guard COMMAND --target PATH [flags]\n\nCommands:\n")
	for _, c := range all {
		fmt.Fprintf(&b, "  %-10s %s\n", c.name, c.summary)
	}
	fmt.Fprintf(&b, "  %-10s %s\n", "help", "this text, or that of a command: selfupdate-guard help tick")
	return b.String() + "\n" + exitCodes
}

func (c *command) help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "selfupdate-guard %s: %s\n\nUsage:\n", c.name, c.summary)
	for _, f := range c.forms {
		fmt.Fprintf(&b, "  selfupdate-guard %s\n", f)
	}
	for p := range strings.SplitSeq(c.about, "\n\n") {
		b.WriteString("\n" + wrap(p, ""))
	}
	first := "\nFlags:\n"
	c.flags.VisitAll(func(f *flag.Flag) {
		b.WriteString(first + flagHelp(f))
		first = ""
	})
	if !c.unfailing {
		b.WriteString("\n" + exitCodes)
	}
	if c.example != "" {
		b.WriteString("\nExample:\n")
		for line := range strings.SplitSeq(c.example, "\n") {
			b.WriteString("  " + line + "\n")
		}
	}
	return b.String()
}

func flagHelp(f *flag.Flag) string {
	value, usage := flag.UnquoteUsage(f)
	b, isBool := f.Value.(interface{ IsBoolFlag() bool })
	switch {
	case isBool && b.IsBoolFlag():
		value, usage = "", usage+" (default off)"
	case f.DefValue != "" && f.DefValue != "0s":
		usage += " (default " + f.DefValue + ")"
	}
	return strings.TrimRight("  "+dashed(f.Name)+" "+value, " ") + "\n" + wrap(usage, "      ")
}

// wrap breaks text into lines of at most width columns, each after indent.
func wrap(text, indent string) string {
	var b strings.Builder
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(indent)+len(line)+1+len(word) > width {
			b.WriteString(indent + line + "\n")
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return b.String() + indent + line + "\n"
}
