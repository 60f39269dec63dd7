package main

import (
	"context"
	"flag"
	"io"
	"runtime/debug"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version = "dev"

func (e *env) versionCommand() *command {
	c := &command{
		name: "version", summary: "print the version of this tool", forms: []string{"version"},
		about: "Prints the version that the build was given, else that of the module in Go's build information, else dev.",
		flags: flag.NewFlagSet("version", flag.ContinueOnError),
	}
	c.flags.SetOutput(io.Discard)
	c.run = func(_ context.Context, args []string) error {
		if err := noArguments(args); err != nil {
			return err
		}
		return e.print(toolVersion() + "\n")
	}
	return c
}

func toolVersion() string {
	if version != "dev" {
		return version
	}
	if bi, ok := debug.ReadBuildInfo(); ok && bi.Main.Version != "" && bi.Main.Version != "(devel)" {
		return bi.Main.Version
	}
	return version
}
