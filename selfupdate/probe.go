package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	probeTimeout = 10 * time.Second
	probeOutput  = 4 << 10 // bytes that are kept of what a probe prints
	probeTries   = 20      // while somebody still has the file open for writing
)

// RunProbe returns a [Config.Probe] that runs the staged program with args, such as
// "-v": it has to end with 0 within 10 s. It runs in a process group of its own,
// which is killed afterwards, with whatever it started that did not leave the group;
// it has no standard input, and of its output only the end of an error's text is kept.
// One that was killed from outside, as at a shutdown, is held back and not rejected.
// Its errors become [ErrProbe] in what [Updater.Apply] returns, but for those of this
// machine (a directory mounted noexec is [ErrPermission]) and of ctx.
//
// The program is run from its staged place, not from the target's: [Updater.Begin]
// does nothing there.
func RunProbe(args ...string) func(ctx context.Context, path string) error {
	return func(ctx context.Context, path string) error { return probe(ctx, path, args, probeTimeout) }
}

func probe(ctx context.Context, path string, args []string, timeout time.Duration) error {
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var out tail
	err := error(nil)
	for range probeTries {
		out = tail{}
		cmd := exec.CommandContext(within, path, args...)
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.WaitDelay = time.Second // a child that left the group may hold the output open
		isolate(cmd)
		err = runGroup(cmd)
		if !isErr(err, textBusy) { // golang/go#22315: a fork of this process holds it open
			break
		}
		if sleep(within, 50*time.Millisecond) != nil {
			break
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrWaitDelay): // it ended well itself
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case within.Err() != nil:
		return fmt.Errorf("%s did not end within %v: %w%s", strings.Join(append([]string{"the program"}, args...), " "), timeout, context.DeadlineExceeded, out.text())
	}
	return fmt.Errorf("%w%s", blame(err), out.text())
}

// errEnded marks a probe that somebody killed: at a shutdown the whole control group
// gets the signal, the probe perhaps before this process; or memory was short. That
// says nothing about the program.
var errEnded = errors.New("ended from outside")

// blame tells what the program did from what this machine did to it, which gets
// the class Local or errEnded.
func blame(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if endedOutside(exit) {
			return fmt.Errorf("%w: %w", errEnded, err)
		}
		return err
	}
	if errors.Is(err, fs.ErrPermission) {
		return &localError{sentinel: ErrPermission, advice: "programs can't be run from the target's directory: is it mounted noexec?", cause: err}
	}
	for _, local := range []error{textBusy, syscall.ENOMEM, syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE, syscall.EIO} {
		if errors.Is(err, local) {
			return &localError{cause: err}
		}
	}
	return err
}

// tail keeps the end of what is written to it.
type tail struct {
	kept []byte
	cut  bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-probeOutput):]...)
	if n := len(t.kept) - probeOutput; n > 0 {
		t.kept, t.cut = append(t.kept[:0], t.kept[n:]...), true
	}
	return len(p), nil
}

// text returns the end of the output, quoted, as an addition to an error.
func (t *tail) text() string {
	s := strings.TrimSpace(string(t.kept))
	if s == "" {
		return ""
	}
	const most = 200
	if len(s) > most {
		s, t.cut = s[len(s)-most:], true
	}
	if t.cut {
		return fmt.Sprintf(" (…%+q)", s)
	}
	return fmt.Sprintf(" (%+q)", s)
}
