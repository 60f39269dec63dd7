// Firewall-controller is a controller in the shape of metal-stack's: it reads what
// the firewall shall be, brings its own program file to the version in there first,
// then does the rest of its work, and writes back what came of it.
//
// When its file was replaced it ends with 0, and the service manager starts the new
// one; with --exec it turns into the new one itself. A failed update is told and
// tried again, and stops nothing. A new version is on trial until it has worked for
// a while; when it does not get there it ends with 3, and the version before runs.
//
// Exit codes: 0 told to stop, or another program is to be started; 1 an error; 2
// wrong arguments; 3 the trial of this version is over.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/metal-stack/selfreconcile/examples/firewall-controller/internal/controller"
	"github.com/metal-stack/selfreconcile/examples/firewall-controller/internal/firewall"
	"github.com/metal-stack/selfreconcile/selfupdate"
	httpsource "github.com/metal-stack/selfreconcile/source/http"
)

// version is set by -ldflags "-X main.version=v2.5.0".
var version = "dev"

const (
	exitExpired = 3
	grace       = 10 * time.Second          // for the controller to end
	canTry      = runtime.GOOS != "windows" // see selfupdate.Trial
)

type options struct {
	store     firewall.File
	target    string
	interval  time.Duration
	soak      time.Duration
	trial     selfupdate.Trial
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
	if err := run(opts); errors.Is(err, selfupdate.ErrExpired) {
		os.Exit(exitExpired)
	} else if err != nil {
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
	f.DurationVar(&o.soak, "soak", time.Minute, "how long a program has to work, over at least two reconciles, before it is confirmed")
	f.IntVar(&o.trial.Starts, "trial-starts", selfupdate.DefaultStarts, "how often a new version may be started without confirming itself")
	f.DurationVar(&o.trial.Deadline, "trial-deadline", selfupdate.DefaultDeadline, "for a new version to confirm itself, from each start; longer than an outage that should not end a trial")
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
	case o.soak < 0:
		err = errors.New("a negative --soak")
	case !controller.CanProve(o.interval, o.soak, o.trial.Deadline):
		err = errors.New("no version could confirm itself: --trial-deadline is too short for --soak and --interval")
	case o.exec && !canExec:
		err = errors.New("--exec is not possible on this system")
	}
	if err != nil {
		fmt.Fprintln(out, "firewall-controller:", err)
	}
	return o, err
}

func run(o options) error {
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	p := &program{options: o, log: log}
	start := p.begin() // before anything that can fail: so that a version that does is left
	if start.Restart {
		log.Warn("this is not the version to run", "reason", start.Reason)
		return p.leave()
	}
	stopped, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, end := context.WithCancelCause(stopped)
	defer end(nil)
	if p.updater != nil {
		go guard(ctx, p.updater, log, end)
	}
	notify(log, daemon.SdNotifyReady) // it runs; whether the API answers is no reason to be restarted
	replaced := p.controller(start).Run(ctx)
	notify(log, daemon.SdNotifyStopping)
	switch {
	case replaced:
		return p.leave()
	case errors.Is(context.Cause(ctx), selfupdate.ErrExpired):
		if o.exec {
			return p.leave()
		}
		return selfupdate.ErrExpired
	}
	log.Info("told to stop")
	p.stopped()
	return nil
}

// program is this process's view of its own file.
type program struct {
	options
	log     *slog.Logger
	updater *selfupdate.Updater // nil until there is one
}

func (p *program) ready() (*selfupdate.Updater, error) {
	if p.updater == nil {
		u, err := selfupdate.New(config(p.options, p.log))
		if err != nil {
			return nil, err
		}
		p.updater = u
	}
	return p.updater, nil
}

// begin counts this start while the version is on trial. Whatever goes wrong, the
// controller starts.
func (p *program) begin() selfupdate.Start {
	u, err := p.ready()
	if err != nil || !canTry {
		return selfupdate.Start{}
	}
	start, err := u.Begin(context.Background())
	if err != nil {
		p.log.Warn("the start could not be recorded as it should", "error", err)
	}
	return start
}

// guard ends the controller when the time for this version is over.
func guard(ctx context.Context, u *selfupdate.Updater, log *slog.Logger, end context.CancelCauseFunc) {
	if err := u.Guard(ctx); !errors.Is(err, selfupdate.ErrExpired) {
		return
	}
	log.Warn("the trial is over: leaving, so that the version before can run")
	end(selfupdate.ErrExpired)
	time.Sleep(grace)
	os.Exit(exitExpired) // a controller that hangs has no say in this
}

func (p *program) controller(start selfupdate.Start) *controller.Controller {
	source := httpsource.New(httpsource.Options{AllowHTTP: p.allowHTTP, UserAgent: "firewall-controller/" + version, Log: p.log})
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		p.log.Warn("no watchdog", "error", err)
	}
	return controller.New(controller.Config{
		Store:      &p.store,
		Version:    version,
		Updater:    p.ready,
		Start:      start,
		Trials:     canTry,
		Release:    source.URL,
		Interval:   p.interval,
		Patience:   10 * time.Second,
		Soak:       p.soak,
		Log:        p.log,
		Alive:      func() { notify(p.log, daemon.SdNotifyWatchdog) },
		AliveEvery: watchdog / 2,
	})
}

// leave makes way for the program that is at the target now.
func (p *program) leave() error {
	if p.exec {
		p.log.Info("turning into the new program", "path", p.updater.Target())
		return turnInto(p.updater.Target())
	}
	p.log.Info("leaving for the new program to be started")
	return nil
}

// stopped takes this start back when nobody else does: an orderly stop says nothing
// about a version. Where selfupdate-guard runs, its post does.
func (p *program) stopped() {
	if p.updater == nil {
		return
	}
	if st, err := p.updater.Status(); err != nil || st.Protection != "no-helper" {
		return
	}
	if err := p.updater.Stopped(context.Background()); err != nil {
		p.log.Warn("the stop could not be recorded", "error", err)
	}
}

// notify tells systemd; without one that is nothing.
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("the service manager can't be told", "state", state, "error", err)
	}
}

// config is the whole of the self-update's configuration.
func config(o options, log *slog.Logger) selfupdate.Config {
	c := selfupdate.Config{
		Target:  o.target,
		Current: version,
		Trust:   selfupdate.UnsignedChecksum("firewall-controller's releases are not signed yet: the sum comes from the program's own host"),
		Probe:   selfupdate.RunProbe("-v"),
		Log:     log,
	}
	if canTry {
		c.Trial = &o.trial
	}
	return c
}
