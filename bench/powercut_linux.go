package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// What is left of an update when the power is cut: a file system of its own for
// each case, in a file, that is shut down without a flush and mounted again.

const diskSize = 320 << 20 // the smallest that mkfs.xfs makes is 300 MiB

// cut is one case: how long after the update began, or after it said that it was done.
type cut struct {
	done  bool
	after time.Duration
	flush bool // meanwhile another program flushes a file of its own, again and again
}

// outcomes, from good to bad.
const (
	oldWhole = "old, whole"
	newWhole = "new, whole"
	zeroByte = "0 bytes"
	missing  = "missing"
	garbage  = "garbage"
)

var outcomes = []string{oldWhole, newWhole, zeroByte, missing, garbage}

// line is one of the table.
type line struct {
	disk disk
	contender
	part string

	mu   sync.Mutex
	cuts int
	left map[string]int
}

func (l *line) add(is string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cuts++
	l.left[is]++
}

func (l *line) String() string {
	s := fmt.Sprintf("%s\t%s\t%s\t%d", l.disk.Name, l.name, l.part, l.cuts)
	for _, is := range outcomes {
		s += fmt.Sprintf("\t%d", l.left[is])
	}
	return s + "\n"
}

// powercut runs the table in a mount namespace of its own: whatever happens to it,
// no mount is left.
func (b bench) powercut(ctx context.Context, work string) error {
	if os.Geteuid() != 0 {
		return errors.New("cutting the power of a file system needs root")
	}
	seed, err := buildSeed(ctx, work)
	if err != nil {
		return err
	}
	files, err := makePrograms(work, seed, b.sizes[0])
	if err != nil {
		return err
	}
	srv, err := startServer(ctx, work)
	if err != nil {
		return err
	}
	defer srv.stop()
	p := powercuts{Work: work, URL: srv.url, Old: files[0].path, New: files[1].path, Digests: [2]string{files[0].digest, files[1].digest}, Samples: b.samples, Later: b.later, Disks: b.disks}
	plan, err := json.Marshal(p)
	if err != nil {
		return err
	}
	cmd, err := child(ctx, job{Contender: cutting, Dir: string(plan)})
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	cmd.Stdout, cmd.Stderr = b.out, os.Stderr
	return cmd.Run()
}

// powercuts is what the process in the namespace is told.
type powercuts struct {
	Work, URL, Old, New string
	Digests             [2]string
	Samples             int             // instants during an update
	Later               []time.Duration // after it
	Disks               []disk
}

func cutPower(j job) error {
	var p powercuts
	if err := json.Unmarshal([]byte(j.Dir), &p); err != nil {
		return err
	}
	fmt.Printf("\nthe power is cut: what is at the target then\n")
	fmt.Printf("during: at %d instants of an update. after: once it has reported success: at once, twice, and %v later\n", p.Samples, p.Later)
	fmt.Printf("flushed: another program flushes a file of its own meanwhile, which brings the journal's part of the update to the disk\n")
	fmt.Printf("ours is started once more before it is looked at; an old program after success is an update that was reported and is lost\n\n")
	var table []*line
	run := newGroup()
	for _, d := range p.Disks {
		var quick []func(mounted) error
		for _, c := range contenders {
			if c.beside {
				continue
			}
			for _, flush := range []bool{false, true} {
				during, after := p.lines(d, c, flush)
				table = append(table, during, after)
				quick = append(quick, func(m mounted) error { return p.quick(m, during, after, flush) })
				for _, later := range p.Later {
					run.slow(func() error {
						return p.with(d, func(m mounted) error { return p.once(m, after, cut{done: true, after: later, flush: flush}) })
					})
				}
			}
		}
		run.now(func() error {
			return p.with(d, func(m mounted) error {
				for _, q := range quick {
					if err := q(m); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	if err := run.wait(); err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\t\t\tcuts\t%s\n", strings.Join(outcomes, "\t"))
	for _, l := range table {
		fmt.Fprint(w, l)
	}
	return w.Flush()
}

func (p powercuts) lines(d disk, c contender, flush bool) (during, after *line) {
	more := ""
	if flush {
		more = ", flushed"
	}
	during = &line{disk: d, contender: c, part: "during" + more, left: map[string]int{}}
	after = &line{disk: d, contender: c, part: "after" + more, left: map[string]int{}}
	return during, after
}

// group runs what takes time one after the other for each disk, and then all of
// what only waits.
type group struct {
	first, second sync.WaitGroup
	ready         chan struct{}
	mu            sync.Mutex
	errs          []error
}

func newGroup() *group { return &group{ready: make(chan struct{})} }

func (g *group) now(f func() error) { g.first.Go(func() { g.note(f()) }) }

func (g *group) slow(f func() error) {
	g.second.Go(func() {
		<-g.ready
		g.note(f())
	})
}

func (g *group) note(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.errs = append(g.errs, err)
}

func (g *group) wait() error {
	g.first.Wait()
	close(g.ready)
	g.second.Wait()
	return errors.Join(g.errs...)
}

// with runs f on a new file system.
func (p powercuts) with(d disk, f func(mounted) error) error {
	work, err := os.MkdirTemp(p.Work, "disk-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	m := mounted{disk: d, image: filepath.Join(work, "image"), dir: filepath.Join(work, "mnt")}
	if err := m.make(); err != nil {
		return fmt.Errorf("%s: %w", d.Name, err)
	}
	defer func() { _ = syscall.Unmount(m.dir, syscall.MNT_DETACH) }()
	return f(m)
}

// quick are the cases that don't wait.
func (p powercuts) quick(m mounted, during, after *line, flush bool) error {
	cuts, err := p.instants(m, during.contender, flush)
	for _, at := range cuts {
		if err == nil {
			err = p.once(m, during, at)
		}
	}
	for range 2 {
		if err == nil {
			err = p.once(m, after, cut{done: true, flush: flush})
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", m.Name, during.contender.name, err)
	}
	return nil
}

// instants spreads the samples over the time that an update takes, measured first.
func (p powercuts) instants(m mounted, c contender, flush bool) ([]cut, error) {
	var took []time.Duration
	for range 3 {
		stop := m.flushing(flush)
		u, err := p.begin(m, c)
		if err != nil {
			return nil, err
		}
		start := time.Now()
		if err := u.done(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
		stop()
		if err := errors.Join(u.wait(), os.RemoveAll(u.dir)); err != nil {
			return nil, err
		}
	}
	all := time.Duration(median(took, func(d time.Duration) float64 { return float64(d) }))
	var cuts []cut
	for i := range p.Samples {
		cuts = append(cuts, cut{after: all * time.Duration(i+1) / time.Duration(p.Samples), flush: flush})
	}
	return cuts, nil
}

// once updates, cuts, mounts again and looks. Ours is then started, and looked at again.
func (p powercuts) once(m mounted, l *line, at cut) error {
	stop := m.flushing(at.flush)
	defer stop()
	u, err := p.begin(m, l.contender)
	if err != nil {
		return err
	}
	if at.done {
		if err := u.done(); err != nil {
			return err
		}
		if at.flush {
			time.Sleep(50 * time.Millisecond) // for one flush at least
		}
	}
	time.Sleep(at.after)
	if err := m.cut(); err != nil {
		return err
	}
	stop()
	if err := u.wait(); at.done && err != nil {
		return err
	}
	if err := m.remount(); err != nil {
		return err
	}
	is, err := p.outcome(u.target)
	if err == nil && strings.HasPrefix(l.name, ours) {
		is, err = p.afterStart(u.target, is)
	}
	if err != nil {
		return err
	}
	l.add(is)
	return os.RemoveAll(u.dir)
}

// afterStart is what a unit does next: its helper looks before the program starts.
func (p powercuts) afterStart(target, is string) (string, error) {
	h, err := selfupdate.NewHelper(target, nil)
	if err != nil {
		return "", err
	}
	if _, err := h.Pre(context.Background()); err != nil {
		return "", fmt.Errorf("the start after the power cut: %w", err)
	}
	then, err := p.outcome(target)
	if err == nil && (is == oldWhole || is == newWhole) && then != oldWhole && then != newWhole {
		is = then
	}
	return is, err
}

func (p powercuts) outcome(target string) (string, error) {
	fi, err := os.Lstat(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return missing, nil
	case err != nil:
		return "", err
	case fi.Size() == 0:
		return zeroByte, nil
	}
	got, err := digestOf(target)
	switch {
	case err != nil:
		return "", err
	case got == p.Digests[0]:
		return oldWhole, nil
	case got == p.Digests[1]:
		return newWhole, nil
	}
	return garbage, nil
}

// underway is an update in a process of its own.
type underway struct {
	dir, target string
	cmd         *exec.Cmd
	out         *bufio.Reader
	stderr      *strings.Builder
}

// begin lays the old program down, durably, and starts the update.
func (p powercuts) begin(m mounted, c contender) (u *underway, err error) {
	u = &underway{stderr: new(strings.Builder)}
	if u.dir, err = os.MkdirTemp(m.dir, ""); err != nil {
		return nil, err
	}
	u.target = filepath.Join(u.dir, "program")
	if err := copyFile(p.Old, u.target); err != nil {
		return nil, err
	}
	if err := os.Chmod(u.dir, 0o755); err != nil {
		return nil, err
	}
	if err := m.sync(); err != nil {
		return nil, err
	}
	cmd, err := child(context.Background(), job{
		Contender: c.name, Target: u.target, URL: p.URL + "/" + filepath.Base(p.New),
		Version: "v2", Digest: p.Digests[1], Announce: true,
	})
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = u.stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	u.cmd, u.out = cmd, bufio.NewReader(out)
	return u, u.line(began)
}

// done waits until the update says that it succeeded.
func (u *underway) done() error { return u.line(succeeded) }

func (u *underway) line(want string) error {
	line, err := u.out.ReadString('\n')
	if strings.TrimSpace(line) != want {
		return errors.Join(fmt.Errorf("the update said %q, want %q: %w", line, want, err), u.wait())
	}
	return nil
}

func (u *underway) wait() error {
	_, _ = io.Copy(io.Discard, u.out)
	if err := u.cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, u.stderr)
	}
	return nil
}

// mounted is a disk that is in use.
type mounted struct {
	disk
	image, dir string
}

func (m mounted) make() error {
	if err := os.Mkdir(m.dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(m.image, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(m.image, diskSize); err != nil {
		return err
	}
	if err := runTool(m.Mkfs[0], append(m.Mkfs[1:], m.image)...); err != nil {
		return err
	}
	return m.mount()
}

func (m mounted) mount() error {
	// A mount namespace that somebody is just making keeps the one that was cut alive
	// for a moment: a mount of the same image then yields that one.
	err := error(nil)
	for range 100 {
		if err = errors.Join(runTool("mount", "-o", m.Options, m.image, m.dir), os.Chmod(m.dir, 0o755)); !errors.Is(err, unix.EIO) {
			return err
		}
		err = errors.Join(err, unix.Unmount(m.dir, 0))
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

func runTool(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

func (m mounted) sync() error {
	d, err := os.Open(m.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}

// flushing is another program on the same file system: it flushes a file of its
// own, again and again, until it is told to stop or can't.
func (m mounted) flushing(on bool) (stop func()) {
	if !on {
		return func() {}
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		f, err := os.OpenFile(filepath.Join(m.dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		for err == nil {
			select {
			case <-quit:
				err = io.EOF
			case <-time.After(2 * time.Millisecond):
				_, err = f.WriteString("another line\n")
				err = first(err, f.Sync())
			}
		}
		if f != nil {
			f.Close()
		}
	}()
	var once sync.Once
	return func() { once.Do(func() { close(quit); <-ended }) }
}

const (
	shutdown   = 0x8004587d // EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN
	noLogFlush = 2
)

// cut takes the power away: what was not flushed is gone, the journal's tail too.
func (m mounted) cut() error {
	d, err := os.Open(m.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.IoctlSetPointerInt(int(d.Fd()), shutdown, noLogFlush)
}

func (m mounted) remount() error {
	err := syscall.Unmount(m.dir, 0)
	for range 100 { // a child that is just being started still has files open
		if !errors.Is(err, syscall.EBUSY) {
			break
		}
		time.Sleep(20 * time.Millisecond)
		err = syscall.Unmount(m.dir, 0)
	}
	if err != nil {
		return err
	}
	return m.mount()
}
