package selfupdate_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
	httpsource "github.com/metal-stack/selfreconcile/source/http"
)

// A daemon that nobody watches: a new version is on trial until it has worked. This
// comes right after flags that only print, and before anything that can fail.
func ExampleUpdater_Begin() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	u, err := selfupdate.New(selfupdate.Config{
		Current: "v2.5.0",
		Trust:   selfupdate.UnsignedChecksum("nothing is signed yet"),
		Probe:   selfupdate.RunProbe("-v"),
		Trial:   &selfupdate.Trial{Starts: 3, Deadline: 10 * time.Minute},
	})
	if err != nil {
		log.Fatal(err) // a wrong argument
	}
	start, err := u.Begin(ctx)
	if err != nil {
		log.Print(err) // and go on: what start says holds
	}
	if start.Restart {
		os.Exit(0) // another version is to be started
	}
	go func() {
		if err := u.Guard(ctx); errors.Is(err, selfupdate.ErrExpired) {
			os.Exit(3) // not confirmed in time: the version before comes back
		}
	}()
	reconcile := func() error { return nil } // the work
	for ctx.Err() == nil {
		if err := reconcile(); err != nil {
			log.Print(err) // no reason to leave: Guard knows when it is
		} else if err := u.Confirm(ctx); err != nil {
			log.Print(err) // tried again with the next good round
		}
		select {
		case <-ctx.Done():
		case <-time.After(3 * time.Minute):
		}
	}
	if err := u.Stopped(context.WithoutCancel(ctx)); err != nil { // told to: that does not count
		log.Print(err)
	}
}

// A supervisor that is not systemd calls the helper around each run of the program;
// cmd/selfupdate-guard is the same as a command line.
func ExampleHelper() {
	ctx := context.Background()
	const path = "/usr/local/bin/firewall-controller"
	h, err := selfupdate.NewHelper(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	for ; ; time.Sleep(10 * time.Second) {
		if s, err := h.Pre(ctx); err != nil || s.RolledBack {
			log.Print(s.Reason, err) // whatever it is, the program is started
		}
		err := exec.CommandContext(ctx, path).Run()
		var exit *exec.ExitError
		end := selfupdate.Ending{NotExecuted: err != nil && !errors.As(err, &exit)}
		if err != nil {
			end.Detail = err.Error()
		}
		if err := h.Post(ctx, end); err != nil {
			log.Print(err)
		}
	}
}

// A controller passes on what its resource says: each new value has what failed here
// tried again, once.
func ExampleUpdater_Clear() {
	u, err := selfupdate.New(selfupdate.Config{
		Trust: selfupdate.UnsignedChecksum("nothing is signed yet"),
		Trial: &selfupdate.Trial{},
	})
	if err != nil {
		log.Fatal(err)
	}
	annotation := "2026-11-30: it was the network"
	if _, err := u.Clear(context.Background(), selfupdate.ClearOptions{All: true, Token: annotation}); err != nil {
		log.Print(err)
	}
}

// A daemon brings itself to the version that it is told, at the start of each
// reconcile, within a bound: a stalled server must not hold up the work for long. A
// failed update never stops the working version.
func ExampleUpdater_Apply() {
	u, err := selfupdate.New(selfupdate.Config{
		Current: "v2.5.0",
		Trust:   selfupdate.UnsignedChecksum("nothing is signed yet"),
	})
	if err != nil {
		log.Fatal(err) // a wrong argument
	}
	rel := httpsource.Release("v2.5.1", "https://images.metal-stack.io/firewall-controller/v2.5.1/firewall-controller")

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	res, err := u.Apply(ctx, rel)
	switch {
	case res.RestartNeeded: // also beside an error: somebody rolled this program back
		os.Exit(0) // systemd starts what is there now
	case errors.Is(err, selfupdate.ErrRejected): // it failed here before
		log.Printf("stay at the current version: %v", err)
	case err != nil:
		log.Printf("try again with the next reconcile: %v", err)
	}
}

// A dry run says whether the URL answers, a usable checksum is there, and the
// directory can be written.
func ExampleUpdater_Plan() {
	u, err := selfupdate.New(selfupdate.Config{
		Target: "/usr/local/bin/firewall-controller",
		Trust:  selfupdate.UnsignedChecksum("nothing is signed yet"),
	})
	if err != nil {
		log.Fatal(err)
	}
	rel := httpsource.Release("v2.5.1", "https://images.metal-stack.io/firewall-controller/v2.5.1/firewall-controller")
	plan, err := u.Plan(context.Background(), rel)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(plan.Action, plan.Want)
}

// Bytes from anywhere, with a digest that is known from somewhere else.
func ExampleApply() {
	want, err := checksum.ParseDigest("sha256:0000000000000000000000000000000000000000000000000000000000000000")
	if err != nil {
		log.Fatal(err)
	}
	f, err := os.Open("/var/cache/nftables-exporter")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	res, err := selfupdate.Apply(context.Background(), f, selfupdate.Options{
		Target: "/usr/local/bin/nftables-exporter",
		Digest: want,
	})
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println(res.Outcome)
}

// Going back needs neither network nor the program that is left.
func ExampleRollback() {
	res, err := selfupdate.Rollback(context.Background(), selfupdate.RollbackOptions{
		Target: "/usr/local/bin/firewall-controller",
		Reason: "drops packets",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("back at", res.Version)
}

// What was rolled back is not installed again until that is lifted.
func ExampleClear() {
	cleared, err := selfupdate.Clear(context.Background(), selfupdate.ClearOptions{
		Target: "/usr/local/bin/firewall-controller",
		All:    true,
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range cleared {
		fmt.Println("may be installed again:", r.Version)
	}
}

// The class says whether to try again, to call somebody, or to look at the machine.
func ExampleClassOf() {
	for _, err := range []error{selfupdate.ErrNetwork, selfupdate.ErrDigestMismatch, selfupdate.ErrNoSpace} {
		fmt.Println(err, "—", selfupdate.ClassOf(err))
	}
	// Output:
	// transfer did not succeed — temporary
	// digest mismatch — refused
	// no space left — local
}

// Exact names by a template; foreign naming by the matcher.
func ExampleMatchAsset() {
	name, err := selfupdate.MatchAsset(
		[]string{"app_1.2.3_Linux_x86_64.tar.gz", "app_1.2.3_Darwin_arm64.tar.gz", "checksums.txt"},
		"app", selfupdate.Platform{OS: "linux", Arch: "amd64"})
	fmt.Println(name, err)
	name, err = selfupdate.ExpandAsset("{name}-{os}-{arch}", "metalctl", "v0.18.7", selfupdate.Platform{OS: "linux", Arch: "amd64"})
	fmt.Println(name, err)
	// Output:
	// app_1.2.3_Linux_x86_64.tar.gz <nil>
	// metalctl-linux-amd64 <nil>
}
