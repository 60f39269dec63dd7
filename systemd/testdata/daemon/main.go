// Command daemon stands for a controller in the tests of the units: it brings itself
// to the version that a file beside it names, and behaves well or badly as the text
// in it says. Each step is a line in a log, for the test to read.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// The test writes version and behaviour into the file, so that one build is enough.
// Each is a text of 24 bytes, with blanks at its end.
var (
	version   = text("@version=000000000000000")
	behaviour = text("@behaves=000000000000000")
)

func text(s string) string { return strings.TrimSpace(s[len("@version="):]) }

var home = os.Getenv("DAEMON_HOME") // log, want, deadline

func init() {
	say("start")
	if behaviour == "crash" {
		os.Exit(2)
	}
	if behaviour == "hang" {
		signal.Ignore(syscall.SIGTERM)
		forever()
	}
}

func main() {
	u, err := updater(selfupdate.UnsignedChecksum("installs nothing"))
	if err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	start, err := u.Begin(ctx)
	if err != nil {
		say("begin: " + err.Error())
	}
	if start.Restart {
		say("leave: " + start.Reason)
		return
	}
	say("begin")
	notify("READY=1")
	switch behaviour {
	case "exit":
		os.Exit(0)
	case "exit1":
		os.Exit(1)
	case "mute":
		forever()
	}
	if behaviour != "deaf" {
		go func() {
			if err := u.Guard(ctx); errors.Is(err, selfupdate.ErrExpired) {
				say("expired")
				os.Exit(1)
			}
		}()
	}
	work(ctx, u)
	_ = u.Stopped(context.Background())
	say("stopped")
}

// forever is no select without cases, which ends the process as a deadlock.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

// work is the loop of a controller.
func work(ctx context.Context, u *selfupdate.Updater) {
	began, works, failed := time.Now(), false, false
	healthy := map[string]time.Duration{"good": 0, "slow-good": 3 * time.Second}
	for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		notify("WATCHDOG=1")
		after, ok := healthy[behaviour]
		if !ok || time.Since(began) < after {
			continue
		}
		switch err := u.Confirm(ctx); {
		case err != nil && !failed:
			failed = true
			say("confirm: " + err.Error())
		case err != nil:
		case !works:
			works = true
			say("works")
		}
		if reconcile(ctx) {
			return
		}
	}
}

// desired is what the daemon was last told to be.
var desired struct {
	want, said string
	updater    *selfupdate.Updater
}

// reconcile brings the program to the wanted one and reports whether to leave.
func reconcile(ctx context.Context) (leave bool) {
	want := read("want")
	if want == "" {
		return false
	}
	if want != desired.want {
		u, err := updater(selfupdate.Pinned(digest(want)))
		if err != nil {
			panic(err)
		}
		desired.want, desired.said, desired.updater = want, "", u
	}
	res, err := desired.updater.Apply(ctx, release(want))
	switch {
	case res.RestartNeeded:
		say("applied " + filepath.Base(want))
		if fill := os.Getenv("DAEMON_FILL"); fill != "" && read("fill") != "" {
			fillUp(fill)
		}
		return true
	case err != nil && err.Error() != desired.said:
		desired.said = err.Error()
		say("refused " + filepath.Base(want) + ": " + desired.said)
	}
	return false
}

func updater(trust selfupdate.Trust) (*selfupdate.Updater, error) {
	deadline, err := time.ParseDuration(read("deadline"))
	if err != nil {
		return nil, err
	}
	return selfupdate.New(selfupdate.Config{
		Current: version, Trust: trust, AllowAnyFormat: true, AllowOtherProgram: true,
		Trial: &selfupdate.Trial{Starts: 3, Deadline: deadline},
		Log:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}

// release is a file on disk.
func release(path string) selfupdate.Release {
	return selfupdate.Release{Version: filepath.Base(path), Assets: []selfupdate.Asset{{
		Name: "app", URL: "file://" + path, Size: -1,
		Open: func(context.Context, selfupdate.Position) (selfupdate.Body, error) {
			f, err := os.Open(path)
			return selfupdate.Body{ReadCloser: f, Size: -1}, err
		},
	}}}
}

func digest(path string) checksum.Digest {
	b, _ := os.ReadFile(path)
	h := sha256.New()
	h.Write(b)
	return checksum.Of(checksum.SHA256, h)
}

func fillUp(path string) {
	f, err := os.Create(path)
	if err != nil {
		say("fill: " + err.Error())
		return
	}
	for size := 64 << 10; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = io.Copy(f, bytes.NewReader(make([]byte, size)))
		}
	}
	say("filled: " + err.Error())
	_ = f.Close()
}

func read(name string) string {
	b, _ := os.ReadFile(filepath.Join(home, name))
	return strings.TrimSpace(string(b))
}

// say adds a line to the log: seconds since the epoch, version, what.
func say(what string) {
	f, err := os.OpenFile(filepath.Join(home, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer f.Close()
	fmt.Fprintf(f, "%d.%03d %s %s\n", time.Now().Unix(), time.Now().Nanosecond()/1e6, version, strings.ReplaceAll(what, "\n", "; "))
}

// notify is sd_notify(3).
func notify(state string) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	c, err := net.Dial("unixgram", socket)
	if err != nil {
		say("notify: " + err.Error())
		return
	}
	defer c.Close()
	if _, err := c.Write([]byte(state)); err != nil {
		say("notify: " + err.Error())
	}
}
