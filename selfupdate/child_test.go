package selfupdate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/metal-stack/selfreconcile/checksum"
)

// childEnv makes the test binary a process of its own that applies or rolls back,
// so that tests can kill, trace or run it as another user.
const childEnv = "SELFUPDATE_TEST_CHILD"

// strace counts the calls of each thread for itself: all of a child's that matter are
// its first thread's.
func init() {
	if os.Getenv(childEnv) != "" {
		runtime.LockOSThread()
	}
}

// child runs "apply TARGET PAYLOAD DIGEST", "rollback TARGET", "status TARGET" or
// "trial OPERATION TARGET BOOT MONO" and returns the exit code: 0, or 10 + the class of the error.
func child() int {
	args := strings.Split(os.Getenv(childEnv), "\n")
	var err error
	switch args[0] {
	case "apply":
		err = childApply(args[1], args[2], args[3])
	case "rollback":
		_, err = Rollback(context.Background(), RollbackOptions{Target: args[1], Reason: "test"})
	case "trial":
		err = childTrial(args[1], args[2], args[3], args[4])
	case "contend":
		err = childContend(args[1], args[2:])
	case "self":
		err = childSelf(args[1], args[2])
	case "where":
		var u *Updater
		if u, err = New(Config{Trust: UnsignedChecksum("test")}); err == nil {
			fmt.Println(u.Target())
		}
	case "status":
		var st Status
		st, err = ReadStatus(args[1], nil)
		fmt.Println(st.Current, st.Unfinished)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 10 + int(ClassOf(err))
	}
	return 0
}

func childApply(target, payload, digest string) error {
	trust, err := parsePinned(digest)
	if err != nil {
		return err
	}
	f, err := os.Open(payload)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	u, err := New(Config{Target: target, Trust: trust, AllowCreate: true})
	if err != nil {
		return err
	}
	res, err := u.Apply(context.Background(), fileRelease(f, digest))
	fmt.Println(res.Outcome)
	if memory, err := os.ReadFile("/proc/self/status"); err == nil {
		fmt.Printf("%s\n", memory)
	}
	return err
}

func parsePinned(digest string) (Trust, error) {
	d, err := checksum.ParseDigest(digest)
	return Pinned(d), err
}

func fileRelease(f *os.File, version string) Release {
	return Release{Version: version, Assets: []Asset{{Name: "app", Size: -1, Open: func(context.Context, Position) (Body, error) {
		return Body{ReadCloser: io.NopCloser(f), Size: -1}, nil
	}}}}
}

// childSelf replaces the running program and goes back.
func childSelf(payload, digest string) error {
	trust, err := parsePinned(digest)
	if err != nil {
		return err
	}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	sum, err := newTarget(own).hash(own, checksum.SHA256)
	if err != nil {
		return err
	}
	u, err := New(Config{Trust: Pinned(sum)})
	if err != nil {
		return err
	}
	fmt.Println("target", u.Target())
	show := func(res Result, err error) {
		if errors.Is(err, ErrRejected) {
			fmt.Println("rejected", res.RestartNeeded)
			return
		}
		fmt.Println(res.Outcome, res.RestartNeeded)
	}
	show(u.Apply(context.Background(), Release{Version: "own", Assets: []Asset{{Name: "app", Size: -1, Open: func(context.Context, Position) (Body, error) {
		return Body{}, errors.New("not needed")
	}}}}))
	next, err := New(Config{Trust: trust, AllowOtherProgram: true})
	if err != nil {
		return err
	}
	f, err := os.Open(payload)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	show(next.Apply(context.Background(), fileRelease(f, "v2")))
	show(next.Apply(context.Background(), fileRelease(f, "v2")))
	show(Rollback(context.Background(), RollbackOptions{})) // the function knows its own program too
	show(next.Apply(context.Background(), fileRelease(f, "v2")))
	return nil
}

func newTarget(path string) *target {
	t, err := openTarget(path, nil, system())
	if err != nil {
		panic(err)
	}
	return t
}

// childContend applies the payloads in turn, a hundred times.
func childContend(target string, payloads []string) error {
	done, busy := 0, 0
	for i := range 100 {
		data, err := os.ReadFile(payloads[i%len(payloads)])
		if err != nil {
			return err
		}
		_, err = Apply(context.Background(), bytes.NewReader(data), Options{Target: target, Digest: digestOf(data)})
		switch {
		case err == nil:
			done++
		case errors.Is(err, ErrBusy):
			busy++
		default:
			return err
		}
	}
	fmt.Printf("%d done, %d busy\n", done, busy)
	return nil
}

// childTrial does the operation of that name, as a process that runs the file at the
// target or as its helper, at that time.
func childTrial(name, path, boot, mono string) error {
	now, err := strconv.ParseInt(mono, 10, 64)
	if err != nil {
		return err
	}
	m := &machine{path: path, clock: &clock{boot: boot, mono: time.Duration(now), wall: time.Unix(1e9, 0)}}
	sys, ctx := m.clocked(system()), context.Background()
	t, err := openTarget(path, nil, sys)
	if err != nil {
		return err
	}
	h := &Helper{t}
	switch {
	case strings.HasPrefix(name, "pre"):
		_, err = h.Pre(ctx)
		return err
	case strings.HasPrefix(name, "tick"):
		_, err = h.Tick(ctx)
		return err
	case strings.HasPrefix(name, "post"):
		return h.Post(ctx, Ending{Orderly: strings.Contains(name, "orderly"), Detail: "signal SEGV"})
	case strings.HasPrefix(name, "confirm from outside"):
		return h.Confirm(ctx, ConfirmOptions{Force: true})
	}
	u, err := newUpdater(Config{Target: path, Trust: UnsignedChecksum("test"), Trial: &Trial{Starts: 3, Deadline: 10 * time.Minute}}, sys)
	if err != nil {
		return err
	}
	u.own = true
	if u.running, err = os.Lstat(path); err != nil {
		return err
	}
	return childProgram(u, name)
}

// childProgram is childTrial for the program itself.
func childProgram(u *Updater, name string) error {
	ctx, err := context.Background(), error(nil)
	op, _, _ := strings.Cut(name, " ")
	if slices.Contains([]string{"confirm", "expire"}, op) { // it has been through Begin
		u.session.confirmed = make(chan struct{})
		if r, err := u.target.read(); err == nil && r.Trial != nil {
			u.session.id = r.Trial.ID
		}
	}
	switch strings.TrimSuffix(op, ",") {
	case "apply":
		contents["s2"] = smallProgram("s2")
		digests["s2"] = digestOf(contents["s2"])
		_, err = u.Apply(ctx, releaseOf(new(testing.T), "s2", "s2").Release)
	case "begin":
		_, err = u.Begin(ctx)
	case "confirm":
		err = u.Confirm(ctx)
	case "expire":
		err = unless(u.Guard(ctx), ErrExpired)
	case "rollback":
		_, err = u.Rollback(ctx, RollbackOptions{Reason: "test"})
	case "clear":
		_, err = u.Clear(ctx, ClearOptions{All: true})
	default:
		err = fmt.Errorf("no operation %q", name)
	}
	return err
}
