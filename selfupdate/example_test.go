package selfupdate_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
	httpsource "github.com/metal-stack/selfreconcile/source/http"
)

// A daemon brings itself to the version that it is told, at the start of each
// reconcile. A failed update never stops the working version.
func ExampleUpdater_Apply() {
	u, err := selfupdate.New(selfupdate.Config{
		Current: "v2.5.0",
		Trust:   selfupdate.UnsignedChecksum("nothing is signed yet"),
	})
	if err != nil {
		log.Fatal(err) // a wrong argument
	}
	rel := httpsource.Release("v2.5.1", "https://images.metal-stack.io/firewall-controller/v2.5.1/firewall-controller")

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	res, err := u.Apply(ctx, rel)
	switch {
	case res.RestartNeeded: // also beside an error: somebody rolled this program back
		os.Exit(0) // systemd starts what is there now
	case errors.Is(err, selfupdate.ErrRejected):
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
