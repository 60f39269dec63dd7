// Firewall-controller is a controller in the shape of metal-stack's: it reads what
// the firewall shall be, brings its own program file to the version in there first,
// then does the rest of its work, and writes back what came of it.
//
// When its file was replaced it ends with 0, and the service manager starts the new
// one; with --exec it turns into the new one itself. A failed update is told and
// tried again, and stops nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/metal-stack/selfreconcile/examples/firewall-controller/internal/controller"
	"github.com/metal-stack/selfreconcile/examples/firewall-controller/internal/firewall"
	"github.com/metal-stack/selfreconcile/selfupdate"
	httpsource "github.com/metal-stack/selfreconcile/source/http"
)

// version is set by -ldflags "-X main.version=v2.5.0".
var version = "dev"

type options struct {
	store     firewall.File
	target    string
	interval  time.Duration
	allowHTTP bool
	exec      bool
	verbose   bool
	version   bool
}

func main() {
	opts, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		os.Exit(2)
	case opts.version: // before anything else: a probe of a new version runs it
		fmt.Println(version)
		return
	}
	if err := run(opts); err != nil {
		fmt.Fprintln(os.Stderr, "firewall-controller:", err)
		os.Exit(1)
	}
}

func parse(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("firewall-controller", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.store.SpecPath, "spec", "firewall.yaml", "`file` that says what the firewall shall be; read, never written")
	f.StringVar(&o.store.StatusPath, "status", "status.yaml", "`file` for the status, written after each reconcile; \"\" is none")
	f.StringVar(&o.store.EventsPath, "events", "events.jsonl", "`file` that events are appended to; \"\" is none")
	f.DurationVar(&o.interval, "interval", 3*time.Minute, "between two reconciles; a changed spec is seen at once")
	f.StringVar(&o.target, "target", "", "`path` of the program file to replace; \"\" is the own one")
	f.BoolVar(&o.allowHTTP, "allow-http", false, "accept a controllerURL without TLS (for demonstrations)")
	f.BoolVar(&o.exec, "exec", false, "turn into the new version instead of ending for the service manager to start it")
	f.BoolVar(&o.verbose, "verbose", false, "log every reconcile")
	f.BoolVar(&o.version, "v", false, "print the version and exit")
	if err := f.Parse(args); err != nil {
		return options{}, err
	}
	var err error
	switch {
	case f.NArg() > 0:
		err = fmt.Errorf("no arguments are expected: %q", f.Args())
	case o.interval <= 0:
		err = errors.New("the interval must be positive")
	case o.exec && !canExec:
		err = errors.New("--exec is not possible on this system")
	}
	if err != nil {
		fmt.Fprintln(out, "firewall-controller:", err)
	}
	return o, err
}

func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	target := ""
	newUpdater := func() (*selfupdate.Updater, error) {
		u, err := selfupdate.New(config(o, log))
		if err == nil {
			target = u.Target()
		}
		return u, err
	}
	source := httpsource.New(httpsource.Options{AllowHTTP: o.allowHTTP, UserAgent: "firewall-controller/" + version, Log: log})
	leave := controller.New(controller.Config{
		Store:    &o.store,
		Version:  version,
		Updater:  newUpdater,
		Release:  source.URL,
		Interval: o.interval,
		Patience: 10 * time.Second,
		Log:      log,
	}).Run(ctx)
	switch {
	case !leave:
		log.Info("told to stop")
	case o.exec:
		log.Info("turning into the new program", "path", target)
		return turnInto(target)
	default:
		log.Info("leaving for the new program to be started")
	}
	return nil
}

// config is the whole of the self-update's configuration.
func config(o options, log *slog.Logger) selfupdate.Config {
	return selfupdate.Config{
		Target:  o.target,
		Current: version,
		Trust:   selfupdate.UnsignedChecksum("firewall-controller's releases are not signed yet: the sum comes from the program's own host"),
		Probe:   probe,
		Log:     log,
	}
}

// probe runs the staged program: one that can't even say its version is not installed.
func probe(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-v")
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("-v: %w (%.200q)", err, out)
	}
	return nil
}
