package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

// childVar holds a child's job. A variable rather than a flag, so that a test
// binary can be the child too.
const childVar = "SELFRECONCILE_BENCH_CHILD"

// job is what a child process is asked for.
type job struct {
	Contender string // or serve, calling
	Dir       string // serve: what
	Call      string // calling: what
	N         int    // calling: how often
	Announce  bool   // say when the update begins and when it succeeded, and flush nothing
	URL       string
	Version   string
	Target    string
	Digest    string
	Profile   string
}

const (
	serve   = "serve"
	calling = "call"
	cutting = "cut"

	began, succeeded = "began", "succeeded"
)

// result is what a child process measured.
type result struct {
	Durable  time.Duration // the update and, where it left any, the flushes
	Returned time.Duration // the update alone
	CPU      time.Duration // user and system, of the whole process during Durable
	Peak     int64         // resident memory of the process, in bytes
}

func isChild() bool { return os.Getenv(childVar) != "" }

func childMain() int {
	var j job
	err := json.Unmarshal([]byte(os.Getenv(childVar)), &j)
	switch {
	case err != nil:
	case j.Contender == serve:
		err = serveFiles(j.Dir)
	case j.Contender == calling:
		err = callMany(j)
	case j.Contender == cutting:
		err = cutPower(j)
	default:
		err = j.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (j job) run() error {
	var update func(job) error
	for _, c := range contenders {
		if c.name == j.Contender {
			update = c.update
		}
	}
	if update == nil {
		return fmt.Errorf("no contender %q", j.Contender)
	}
	if j.Profile != "" && j.Contender == ours {
		f, err := os.Create(j.Profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}

	if j.Announce {
		fmt.Println(began)
		if err := update(j); err != nil {
			return err
		}
		fmt.Println(succeeded)
		return nil
	}
	var r result
	cpu, start := cpuTime(), time.Now()
	if err := update(j); err != nil {
		return err
	}
	r.Returned = time.Since(start)
	if err := flush(j.Target); err != nil {
		return err
	}
	r.Durable = time.Since(start)
	r.CPU = cpuTime() - cpu
	r.Peak = peakMemory()
	return json.NewEncoder(os.Stdout).Encode(r)
}

// flush makes the update durable where it did not do so itself.
func flush(target string) error {
	for _, path := range []string{target, filepath.Dir(target)} {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		if err := first(f.Sync(), f.Close()); err != nil && !flushOptional {
			return err
		}
	}
	return nil
}

func child(ctx context.Context, j job) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childVar+"="+string(b))
	return cmd, nil
}

func runChild(ctx context.Context, j job) (result, error) {
	cmd, err := child(ctx, j)
	if err != nil {
		return result{}, err
	}
	return resultOf(cmd)
}

// resultOf runs a child and returns what it prints.
func resultOf(cmd *exec.Cmd) (result, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return result{}, fmt.Errorf("%w: %s", err, &stderr)
	}
	var r result
	if err := json.Unmarshal(out, &r); err != nil {
		return result{}, fmt.Errorf("the child printed %q: %w", out, err)
	}
	return r, nil
}

func runIdle(ctx context.Context, work string) (result, error) {
	seeds, err := filepath.Glob(filepath.Join(work, "seed", "program*"))
	if err != nil || len(seeds) != 1 {
		return result{}, fmt.Errorf("the idle program: %v %w", seeds, err)
	}
	out, err := exec.CommandContext(ctx, seeds[0]).Output()
	if err != nil {
		return result{}, fmt.Errorf("the idle program: %w", err)
	}
	return result{Peak: peakIn(out)}, nil
}

// peakIn finds the peak of the resident memory in a /proc/PID/status. Not
// ru_maxrss: Linux hands a child its parent's peak across fork and exec.
func peakIn(status []byte) int64 {
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}

type fileServer struct {
	url string
	cmd *exec.Cmd
}

// startServer serves a directory from a process of its own, so that neither its
// CPU nor its memory counts as a client's.
func startServer(ctx context.Context, dir string) (*fileServer, error) {
	cmd, err := child(ctx, job{Contender: serve, Dir: dir})
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // closed when this process ends, however it ends
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		in.Close()
		return nil, first(cmd.Wait(), err)
	}
	return &fileServer{url: strings.TrimSpace(url), cmd: cmd}, nil
}

func (s *fileServer) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // says that it was killed
}

func serveFiles(dir string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = l.Close() // the parent is gone
	}()
	return http.Serve(l, http.FileServer(http.Dir(dir)))
}
