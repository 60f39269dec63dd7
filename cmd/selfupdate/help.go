package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"
)

const exitCodes = `Exit codes:
  0  done, or nothing to do
  1  temporary: the network, a rate limit, not published yet, another version on
     trial, interrupted: try again later
  2  wrong usage
  3  refused: the file, its checksum, its format or a rejection; what --from names
     is not there any more; trying again won't help
  4  local: permission, space, a busy or missing target, an unreadable file
`

const width = 88 // columns of a help text

func toolHelp(all []*command) string {
	var b strings.Builder
	b.WriteString("selfupdate installs a release of a program in one step, verified, and can go back.\n\nUsage:\n  selfupdate COMMAND [flags]\n\nCommands:\n")
	for _, c := range all {
		fmt.Fprintf(&b, "  %-10s %s\n", c.name, c.summary)
	}
	fmt.Fprintf(&b, "  %-10s %s\n", "help", "this text, or that of a command: selfupdate help apply")
	b.WriteString("\nFlags may stand before and after other arguments, as --flag VALUE or --flag=VALUE;\n" +
		"what follows -- is no flag.\n\n" + exitCodes +
		"\nExample:\n  selfupdate apply --target /usr/local/bin/metalctl --github metal-stack/metalctl \\\n" +
		"    --unsigned-checksum \"nothing is signed yet\"\n")
	return b.String()
}

func (c *command) help() string {
	var b strings.Builder
	b.WriteString(wrap("selfupdate "+c.name+": "+c.summary, "", width))
	b.WriteString("\nUsage:\n")
	for _, f := range c.forms {
		fmt.Fprintf(&b, "  selfupdate %s\n", f)
	}
	for p := range strings.SplitSeq(c.about, "\n\n") {
		b.WriteString("\n" + wrap(p, "", width))
	}
	for _, name := range c.order {
		if strings.HasSuffix(name, ":") {
			fmt.Fprintf(&b, "\n%s\n", name)
		} else {
			b.WriteString(flagHelp(c.flags.Lookup(name)))
		}
	}
	b.WriteString("\n" + exitCodes)
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
	case !slices.Contains([]string{"", "0", "0s"}, f.DefValue):
		usage += " (default " + f.DefValue + ")"
	}
	return strings.TrimRight("  "+dashed(f.Name)+" "+value, " ") + "\n" + wrap(usage, "      ", width)
}

// wrap breaks text into lines of at most width columns, each after indent.
func wrap(text, indent string, width int) string {
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
