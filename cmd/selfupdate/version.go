package main

import (
	"context"
	"runtime/debug"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version = "dev"

func versionCommand(e *env) *command {
	c := &command{
		name: "version", summary: "print the version of this tool",
		forms: []string{"version"},
		about: "Prints the version that the build was given, else that of the module in Go's build information, else dev.",
		flags: e.newFlags("version"),
		order: shared[:],
	}
	c.run = func(_ context.Context, args []string) error {
		if err := noArguments(args); err != nil {
			return err
		}
		v := toolVersion()
		return e.result(struct {
			Version string `json:"version"`
		}{v}, v+"\n")
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
