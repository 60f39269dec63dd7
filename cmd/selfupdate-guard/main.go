// Command selfupdate-guard looks after a program on trial from outside: it counts
// the program's starts, brings the version before back when the new one can't be
// executed, crashes, hangs or does not confirm itself in time, and tells an operator
// what is going on and what to type next. "selfupdate-guard help" says how, and
// docs/operations.md what to put into a systemd unit.
//
// It makes no network request and reads no configuration file, and of the
// environment only what systemd tells ExecStopPost= ("post"), and PATH to find
// systemctl or a shell.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := newEnv(os.Stdout, os.Stderr, os.Getenv).run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
