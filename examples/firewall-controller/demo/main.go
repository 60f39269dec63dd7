//go:build unix

// Demo shows the main job: real controllers of six versions, three of
// them broken, built from the source beside it, served as releases from a local
// server, that bring themselves to the version in their spec, prove themselves, and
// are left for the version before when they don't.
//
// It plays the operator and the service manager, which calls selfupdate's Helper before
// and after each start as systemd's ExecStartPre and ExecStopPost would call
// selfupdate-guard; everything else is the real thing.
// What it prints is what processes, files and the server's log say: what tells the
// story, and with -v all of it. It ends non-zero when anything that it announces does
// not happen, and leaves nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

const (
	v0, v1, v2 = "v2.5.0", "v2.5.1", "v2.5.2"
	v3, v4, v5 = "v2.5.3", "v2.5.4", "v2.5.5"
)

// The time is compressed; what it would be on a firewall stands behind it.
const (
	reconcileEvery = 500 * time.Millisecond // 3 min
	restartAfter   = 500 * time.Millisecond // RestartSec=10
	tickEvery      = time.Second            // a timer, 30 s
	trialStarts    = 3                      // 3
	trialDeadline  = 6 * time.Second        // 10 min
	soak           = time.Second            // 1 min
)

func main() {
	verbose := flag.Bool("v", false, "print everything that is said")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	if err := run(ctx, os.Stdout, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo is everything that has to be cleaned up, and where things are.
type demo struct {
	*screen
	dir      string
	target   string // the program file that is replaced
	spec     string
	status   string
	events   string
	rules    string
	cli      string // the selfupdate command
	building sync.Mutex
	releases map[string]release // guarded by building while that goes on
	server   *server
	service  *service
	poller   *poller
	table    table
	built    time.Duration // how long that took
}

func run(ctx context.Context, out io.Writer, verbose bool) (err error) {
	dir, err := os.MkdirTemp("", "selfreconcile-demo-") // mode 0700: nobody else can write beside the program
	if err != nil {
		return err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // macOS: /var is a link
		return err
	}
	d := newDemo(dir, out)
	d.verbose = verbose
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.prepare(ctx); err != nil {
		return err
	}
	for i, s := range d.story() {
		if err := d.step(ctx, i+1, s); err != nil {
			return err
		}
	}
	d.table.print(d.screen)
	d.say("%.0f s, of which %.0f for compiling.", time.Since(d.start).Seconds(), d.built.Seconds())
	return nil
}

func newDemo(dir string, out io.Writer) *demo {
	return &demo{
		screen:   newScreen(out),
		dir:      dir,
		target:   filepath.Join(dir, "bin", "firewall-controller"),
		spec:     filepath.Join(dir, "firewall.yaml"),
		status:   filepath.Join(dir, "status.yaml"),
		events:   filepath.Join(dir, "events.jsonl"),
		rules:    filepath.Join(dir, "rules"),
		releases: map[string]release{},
	}
}

// prepare builds, serves and installs. Nothing runs from the target's directory
// yet, so that no file is written there beside a fork (golang/go#22315).
func (d *demo) prepare(ctx context.Context) error {
	d.say("A firewall-controller that updates itself. What follows is what real processes, files and")
	d.say("the server's log say (-v: all of it); only the service manager is played, which restarts the")
	d.say("program and before each start and after each end does what selfupdate-guard does under systemd.")
	d.say("Time is compressed (on a firewall): reconcile every %v (3 min), restart after %v (10 s),", reconcileEvery, restartAfter)
	d.say("a trial of %d starts (3) and %v each (10 min), confirmed after %v of work (1 min).", trialStarts, trialDeadline, soak)
	d.say("$DIR is %s, removed at the end.", d.dir)
	d.abbreviate(d.dir, "$DIR")
	if err := d.build(ctx); err != nil {
		return err
	}
	d.built = time.Since(d.start)
	server, err := serve(ctx, d.releases)
	if err != nil {
		return err
	}
	d.server = server
	d.say("$URL is %s, which serves them as images.metal-stack.io does:", server.url)
	d.abbreviate(server.url, "$URL")
	d.say("  %s and .sha256:", server.assetURL(v0))
	d.say("  %s", strings.TrimSpace(string(server.files[assetPath(v0)+".sha256"])))
	if err := d.install(); err != nil {
		return err
	}
	helper, err := selfupdate.NewHelper(d.target, nil)
	if err != nil {
		return err
	}
	d.service = startService(d.screen, helper, d.target, []string{
		"--spec", d.spec, "--status", d.status, "--events", d.events, "--allow-http", "--interval", reconcileEvery.String(),
		"--soak", soak.String(), "--trial-starts", strconv.Itoa(trialStarts), "--trial-deadline", trialDeadline.String(),
	})
	d.poller = poll(d.target)
	return nil
}

// install puts the first version where a machine image would have it.
func (d *demo) install() error {
	if err := os.Mkdir(filepath.Dir(d.target), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(d.target, d.releases[v0].data, 0o755); err != nil {
		return err
	}
	return d.writeSpec(v0, 1, "")
}

// close ends what is running and removes the directory. Nil parts were not begun.
func (d *demo) close() error {
	if d.poller != nil {
		d.poller.stop()
	}
	if d.service != nil {
		d.service.stop()
	}
	var err error
	if d.server != nil {
		err = d.server.Close()
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}
