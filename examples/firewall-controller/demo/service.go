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
)

const tailLines = 20

// service plays systemd with Restart=always: whenever the program ends it is
// started again, from the same path.
type service struct {
	screen *screen
	path   string
	args   []string
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	runs  []process
	lines []string // the last ones of all runs
}

// process is one run of the program.
type process struct {
	pid    int
	exited bool
	exit   string   // how it ended
	said   []string // its log, shortened for the screen, each line once
}

func startService(s *screen, path string, args []string) *service {
	ctx, cancel := context.WithCancel(context.Background())
	v := &service{screen: s, path: path, args: args, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(v.done)
		v.loop(ctx)
	}()
	return v
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
	cmd := exec.CommandContext(ctx, v.path, v.args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second                       // then it is killed
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the demo, which stops it
	out := &lineWriter{each: v.line}
	cmd.Stdout, cmd.Stderr = out, out
	v.mu.Lock()
	if ctx.Err() != nil {
		v.mu.Unlock()
		return
	}
	err := cmd.Start()
	if err != nil {
		v.mu.Unlock()
		v.screen.tell("supervisor", "can't start it: %v", err)
		return
	}
	pid := cmd.Process.Pid
	v.runs = append(v.runs, process{pid: pid})
	v.mu.Unlock()
	v.screen.tell("supervisor", "started pid %d", pid)
	_ = cmd.Wait() // how it ended is in ProcessState
	v.mu.Lock()
	last := &v.runs[len(v.runs)-1]
	last.exited, last.exit = true, cmd.ProcessState.String()
	v.mu.Unlock()
	v.screen.tell("supervisor", "pid %d has ended: %s", pid, cmd.ProcessState)
}

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
	v.lines = append(v.lines, raw)
	v.lines = v.lines[max(0, len(v.lines)-tailLines):]
	p := &v.runs[len(v.runs)-1]
	known := slices.Contains(p.said, text)
	if !known {
		p.said = append(p.said, text)
	}
	pid := p.pid
	v.mu.Unlock()
	if !known {
		v.screen.tell(fmt.Sprintf("pid %d", pid), "%s", text)
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
