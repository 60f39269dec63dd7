//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

const tailLines = 20

// service plays systemd with Restart=always: whenever the program ends it is
// started again, from the same path; before each start, after each end and at each
// tick of a timer the helper is called, as the units in systemd/ do.
type service struct {
	screen *screen
	helper *selfupdate.Helper
	path   string
	args   []string
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	runs  []process
	lines []string // the last ones of all runs, what is repeated once
}

// process is one run of the program.
type process struct {
	pid     int
	start   selfupdate.Start // what the helper said before it
	told    bool             // to end
	cut     bool             // killed like by a power cut: nobody sees how it ended
	exited  bool
	exit    string   // how it ended
	said    []string // its log, shortened for the screen, each line once
	panicks bool     // what else it prints is a trace
}

func startService(s *screen, helper *selfupdate.Helper, path string, args []string) *service {
	ctx, cancel := context.WithCancel(context.Background())
	v := &service{screen: s, helper: helper, path: path, args: args, cancel: cancel, done: make(chan struct{})}
	var both sync.WaitGroup
	both.Go(func() { v.loop(ctx) })
	both.Go(func() { v.timer(ctx) })
	go func() {
		defer close(v.done)
		both.Wait()
	}()
	return v
}

// timer is selfupdate-guard's tick.
func (v *service) timer(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		check, err := v.helper.Tick(ctx)
		if err != nil && ctx.Err() == nil {
			v.screen.tell("guard tick", "%v", err)
		}
		if check.Restart {
			v.screen.tell("guard tick", "restarting: %s", check.Reason)
			v.signal(syscall.SIGTERM)
			_ = v.helper.Restarted(ctx) // else the next tick says so again
		}
	}
}

// signal sends a signal to the program that runs.
func (v *service) signal(sig syscall.Signal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.runs); n > 0 && !v.runs[n-1].exited {
		v.runs[n-1].told = sig == syscall.SIGTERM
		v.runs[n-1].cut = sig == syscall.SIGKILL
		_ = syscall.Kill(v.runs[n-1].pid, sig) // it may have ended
	}
}

// stop ends the program like systemctl stop, and waits for its end.
func (v *service) stop() {
	v.cancel()
	<-v.done
}

func (v *service) loop(ctx context.Context) {
	for {
		v.once(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(restartAfter):
		}
	}
}

func (v *service) once(ctx context.Context) {
	start, err := v.helper.Pre(ctx)
	if ctx.Err() != nil {
		return
	}
	v.pre(start, err)
	cmd := exec.CommandContext(ctx, v.path, v.args...)
	cmd.Cancel = func() error { v.signal(syscall.SIGTERM); return nil }
	cmd.WaitDelay = 5 * time.Second                       // then it is killed
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the demo, which stops it
	out := &lineWriter{each: v.line}
	cmd.Stdout, cmd.Stderr = out, out
	v.mu.Lock()
	if err := cmd.Start(); err != nil {
		v.mu.Unlock()
		v.screen.tell("supervisor", "can't start it: %v", err)
		v.post(selfupdate.Ending{NotExecuted: true, Detail: err.Error()})
		return
	}
	pid := cmd.Process.Pid
	v.runs = append(v.runs, process{pid: pid, start: start})
	v.mu.Unlock()
	v.screen.detail("supervisor", "started pid %d", pid)
	_ = cmd.Wait() // how it ended is in ProcessState
	v.mu.Lock()
	last := &v.runs[len(v.runs)-1]
	last.exited, last.exit = true, cmd.ProcessState.String()
	ended := *last
	v.mu.Unlock()
	v.ended(ended)
	if !ended.cut {
		v.post(selfupdate.Ending{Orderly: ended.told, Detail: ended.exit})
	}
}

// ended says how the program ended; that it left in order is what was to be.
func (v *service) ended(p process) {
	switch last := p.said[max(0, len(p.said)-1):]; {
	case p.exit == "exit status 0":
		v.screen.detail("supervisor", "pid %d has ended: %s", p.pid, p.exit)
	case p.panicks && !v.screen.verbose:
		v.screen.tell("supervisor", "pid %d has ended: %s, %s", p.pid, p.exit, last[0])
	default:
		v.screen.tell("supervisor", "pid %d has ended: %s", p.pid, p.exit)
	}
}

// pre says what the helper found before a start, in the words of selfupdate-guard pre.
func (v *service) pre(s selfupdate.Start, err error) {
	if err != nil {
		v.screen.tell("guard pre", "%v", err)
	}
	switch {
	case s.RolledBack:
		v.screen.tell("guard pre", "went back to %s: %s", s.Version, s.Reason)
	case s.OnTrial && s.Reason != "":
		v.screen.tell("guard pre", "%s is on trial: %s", s.Version, s.Reason)
	case s.OnTrial:
		v.screen.tell("guard pre", "%s is on trial: %v to confirm, then %s", s.Version, s.Deadline, more(s.Left))
	case s.Reason != "":
		v.screen.tell("guard pre", "%s starts: %s", s.Version, s.Reason)
	}
}

func more(starts int) string {
	switch starts {
	case 0:
		return "no more starts"
	case 1:
		return "1 more start"
	}
	return fmt.Sprintf("%d more starts", starts)
}

// post tells the helper how the program ended.
func (v *service) post(e selfupdate.Ending) {
	if err := v.helper.Post(context.Background(), e); err != nil {
		v.screen.tell("guard post", "%v", err)
	}
}

// countdown is what changes each time that the same thing is said.
var countdown = regexp.MustCompile(`next try in \S+`)

var stamp = regexp.MustCompile(`^time=\S+ `)

var logLine = regexp.MustCompile(`^time=\S+ level=(\S+) msg=("(?:[^"\\]|\\.)*"|\S*) ?(.*)$`)

// line takes a line of the program's log and shows it, each kind once a process.
func (v *service) line(raw string) {
	text := raw
	if m := logLine.FindStringSubmatch(raw); m != nil {
		msg := m[2]
		if u, err := strconv.Unquote(msg); err == nil {
			msg = u
		}
		text = strings.TrimSpace(strings.TrimPrefix(m[1]+" ", "INFO ") + msg + " " + m[3])
	}
	v.mu.Lock()
	if n := len(v.lines); n > 0 && stamp.ReplaceAllString(v.lines[n-1], "") == stamp.ReplaceAllString(raw, "") {
		v.lines = v.lines[:n-1] // the same again: the newest is enough
	}
	v.lines = append(v.lines, raw)
	v.lines = v.lines[max(0, len(v.lines)-tailLines):]
	p := &v.runs[len(v.runs)-1]
	said := countdown.ReplaceAllString(text, "next try in …")
	known := slices.Contains(p.said, said) || p.panicks
	p.panicks = p.panicks || strings.HasPrefix(text, "panic: ")
	if !known {
		p.said = append(p.said, said)
	}
	pid := p.pid
	v.mu.Unlock()
	if !known {
		v.screen.log(fmt.Sprintf("pid %d", pid), text)
	}
}

func (v *service) tail() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.lines)
}

// processes returns all runs so far, the newest last.
func (v *service) processes() []process {
	v.mu.Lock()
	defer v.mu.Unlock()
	runs := slices.Clone(v.runs)
	for i := range runs {
		runs[i].said = slices.Clone(runs[i].said)
	}
	return runs
}

// now returns the newest run.
func (v *service) now() process {
	runs := v.processes()
	if len(runs) == 0 {
		return process{exited: true}
	}
	return runs[len(runs)-1]
}

// find returns the newest run with that pid.
func (v *service) find(pid int) process {
	for _, p := range slices.Backward(v.processes()) {
		if p.pid == pid {
			return p
		}
	}
	return process{}
}

func (p process) logged(text string) bool {
	return slices.ContainsFunc(p.said, func(line string) bool { return strings.Contains(line, text) })
}

// lineWriter calls each for every whole line.
type lineWriter struct {
	each func(string)
	rest []byte
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	for {
		line, rest, found := bytes.Cut(w.rest, []byte("\n"))
		if !found {
			return len(b), nil
		}
		w.each(string(line))
		w.rest = bytes.Clone(rest)
	}
}
