// Service is the program that the tests put on trial under a supervisor. What it
// does depends on its last argument, which the test gives by version.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

var version = "version-0"

// Exit codes. The library never exits: which code asks for a restart is the
// program's business.
const (
	failed  = 1
	restart = 75
)

func main() { os.Exit(run(context.Background(), os.Args[1])) }

func run(ctx context.Context, behaviour string) int {
	if behaviour == "crash" {
		return failed
	}
	u, err := selfupdate.New(selfupdate.Config{Current: version, Trust: selfupdate.UnsignedChecksum("test"), Trial: &selfupdate.Trial{}})
	if err != nil {
		fmt.Println(err)
		return failed
	}
	start, err := u.Begin(ctx)
	if err != nil {
		fmt.Println(err)
	}
	if start.Restart {
		return restart
	}
	fmt.Println(version, "begun")
	switch behaviour {
	case "late":
		return failed
	case "hang": // with a child in its group, as a watcher would be
		_ = exec.Command("sleep", "60").Start()
		_ = u.Guard(ctx)
		time.Sleep(time.Minute)
	}
	if err := u.Confirm(ctx); err != nil {
		fmt.Println(err)
		return failed
	}
	fmt.Println(version, "confirmed")
	return 0
}
