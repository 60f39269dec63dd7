// Command selfupdate is for whoever operates a program that this module updates,
// or publishes one: it installs a release, goes back, lifts a rejection, shows the
// state, confirms a version on trial, and checks a file against a checksum file. "selfupdate help" says how.
//
// It reads no environment variable but those of the HTTP proxies (HTTPS_PROXY,
// HTTP_PROXY, NO_PROXY) and, through crypto/x509, of the trusted certificates
// (SSL_CERT_FILE, SSL_CERT_DIR), and no configuration file.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := interruptible()
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// interruptible returns a context that ends at the first signal that asks to end;
// the second one kills. A signal that is ignored already (nohup, a job of a script
// in the background) stays ignored.
func interruptible() (context.Context, context.CancelFunc) {
	var signals []os.Signal
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signals = append(signals, s)
		}
	}
	if len(signals) == 0 { // none would mean all
		return context.WithCancel(context.Background())
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
