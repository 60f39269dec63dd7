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
		cmd.WaitDelay = time.Second // a child of it may hold the output open
		isolate(cmd)
		err = cmd.Run()
		killGroup(cmd)
		if !isErr(err, textBusy) { // golang/go#22315: a fork of this process holds it open
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case within.Err() != nil:
		return fmt.Errorf("%s did not end within %v: %w%s", strings.Join(append([]string{"the program"}, args...), " "), timeout, context.DeadlineExceeded, out.text())
	case errors.Is(err, exec.ErrWaitDelay): // it ended well itself
		return nil
	}
	return fmt.Errorf("%w%s", notExecuted(err), out.text())
}

// notExecuted gives what this machine refuses, whatever the program, its class.
func notExecuted(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return err
	}
	for _, local := range []error{fs.ErrPermission, syscall.ENOMEM, syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, local) {
			return &localError{sentinel: ErrPermission, advice: "programs can't be run from the target's directory: is it mounted noexec?", cause: err}
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
