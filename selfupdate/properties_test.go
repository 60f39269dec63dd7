package selfupdate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/checksum"
)

// nature is what a program does once it is started.
type nature int

const (
	good     nature = iota // confirms
	needsAPI               // confirms while the API is up
	noexec                 // can't be started
	crash                  // ends before Begin
	hang                   // never gets to Begin
	exits                  // ends after Begin
	mute                   // Begin, then neither Guard nor Confirm
	sick                   // Begin and Guard, never Confirm
	natures
)

func (n nature) healthy() bool { return n <= needsAPI }

const (
	castPrograms = 5 // p0 … p4: what releases have
	castForeign  = 2 // f0, f1: what an operator puts there by hand
)

// cast are the programs of the properties, of a few KB, by name.
var cast = sync.OnceValue(func() map[string][]byte {
	all := map[string][]byte{}
	for i := range castPrograms {
		all[fmt.Sprintf("p%d", i)] = smallProgram(fmt.Sprintf("p%d", i))
	}
	for i := range castForeign {
		all[fmt.Sprintf("f%d", i)] = smallProgram(fmt.Sprintf("f%d", i))
	}
	return all
})

var castNames = sync.OnceValue(func() map[checksum.Digest]string {
	names := map[checksum.Digest]string{}
	for name, data := range cast() {
		names[digestOf(data)] = name
	}
	return names
})

// castName returns the program with digest d, "" for none, "?" for what is no program.
func castName(d checksum.Digest) string {
	if d.IsZero() {
		return ""
	}
	if name, ok := castNames()[d]; ok {
		return name
	}
	return "?"
}

func digestNamed(name string) checksum.Digest {
	for d, n := range castNames() {
		if n == name {
			return d
		}
	}
	panic(name)
}

// step is one thing that happens to a machine. A run is a list of them, so that a
// failure can be kept as a test.
type step struct {
	do    string
	n     int    // of the program, the slot, the variant
	fault string // "kill" or "power": at operation at, or after the action if that has fewer
	at    int
	seed  uint64 // what survives a power cut
}

func (s step) String() string {
	text := fmt.Sprintf("{do: %q", s.do)
	if s.n != 0 {
		text += fmt.Sprintf(", n: %d", s.n)
	}
	if s.fault != "" {
		text += fmt.Sprintf(", fault: %q, at: %d", s.fault, s.at)
	}
	if s.seed != 0 {
		text += fmt.Sprintf(", seed: %d", s.seed)
	}
	return text + "},"
}

// world is one machine with everything that happens to it, and what an observer
// who sees all remembers of it (the ghosts).
type world struct {
	t       tester
	helper  bool // a helper before and after every start
	timer   bool // its timer
	natures [castPrograms]nature
	api     bool
	full    bool
	room    int // operations that a full disk has room for
	wall    time.Duration

	clock *clock
	dir   string
	path  string
	lossy *lossy
	sys   ops
	boots int
	files int64 // for their times

	armed int // operations until the fault; 0: none
	dead  bool

	proc      *proc
	downloads map[string]int
	desired   string

	// ghosts
	confirmed map[string]bool // may be what a trial falls back to
	failed    map[string]bool // left for a failure and not allowed again since
	retried   map[string]int  // trials of a program that had failed before
	trials    map[string]bool // that were seen, by ID
	records   map[string]bool // that were seen
	cut       bool            // the power was, in this action
	well      map[string]bool // the program that came back confirmed since that one failed
	kept      string          // what a Confirm that returned nil was for, until somebody acts
	starts    int             // of the candidate of trial
	trial     string          // whose starts are counted
	spoiled   map[string]bool // a slot of it was damaged by hand, or its last copy removed
	gave      map[string]bool // its slot made room on a full disk, which comes before the record that forgets it
	gone      bool            // the target was deleted by hand
	corrupt   bool            // the record was damaged by hand
	hand      bool            // something was done by hand in this action
	badByHand bool            // an operator, or a damaged record, made a bad program the confirmed one
	before    record          // after the action before
	was       string          // at the target then
}

// proc is a process of the program.
type proc struct {
	name  string
	u     *Updater // nil: it has not got to Begin and won't
	start Start
}

var errGone = errors.New("the machine is gone")

func newWorld(t tester, dir string, natures [castPrograms]nature, helper, timer bool) *world {
	w := &world{
		t: t, helper: helper, timer: timer, natures: natures, api: true,
		clock:     &clock{mono: time.Hour, boot: "boot0", wall: time.Unix(1e9, 0)},
		downloads: map[string]int{}, desired: "p0",
		confirmed: map[string]bool{"p0": true}, failed: map[string]bool{}, retried: map[string]int{},
		trials: map[string]bool{}, records: map[string]bool{}, well: map[string]bool{}, spoiled: map[string]bool{}, gave: map[string]bool{},
	}
	for i := range castForeign {
		w.confirmed[fmt.Sprintf("f%d", i)] = true // the operator's choice
	}
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "app"), cast()["p0"], 0o755))
	w.mount(dir)
	w.was = w.at()
	return w
}

// mount makes dir the file system of the machine.
func (w *world) mount(dir string) {
	w.dir, w.path = dir, filepath.Join(dir, "app")
	require.NoError(w.t, filepath.Walk(dir, func(p string, fi os.FileInfo, err error) error {
		if err != nil || fi.IsDir() {
			return err
		}
		return w.touch(p)
	}))
	w.lossy = newLossy(w.t, dir)
	m := &machine{clock: w.clock}
	sys := w.lossy.ops(system())
	create, readDir, free := sys.create, sys.readDir, sys.space
	sys.create = func(p string) (file, error) {
		f, err := create(p)
		if err != nil {
			return nil, err
		}
		return &timedFile{f, w}, nil
	}
	sys.readDir = func(p string) ([]string, error) { // the same order in every run
		names, err := readDir(p)
		slices.Sort(names)
		return names, err
	}
	sys.space = func(p string) (space, error) {
		if w.full {
			return space{}, nil
		}
		return free(p)
	}
	w.sys = m.clocked(hooked(sys, w.hook))
	w.sys.now = func() time.Time { return w.clock.wall.Add(w.wall) }
}

// touch gives a file a time that is the same in every run.
func (w *world) touch(path string) error {
	w.files++
	at := time.Unix(1e9+w.files, 0)
	return os.Chtimes(path, at, at)
}

type timedFile struct {
	file
	w *world
}

func (f *timedFile) Close() error {
	if err := f.w.touch(f.Name()); err != nil {
		return errors.Join(err, f.file.Close())
	}
	return f.file.Close()
}

func (w *world) hook(op, path string) error {
	if w.dead {
		return errGone
	}
	switch op {
	case "open", "read", "readDir", "metadata", "space", "lock":
		return nil
	}
	if w.armed > 0 {
		if w.armed--; w.armed == 0 {
			w.dead = true
			return errGone
		}
	}
	if !w.full {
		return nil
	}
	switch op {
	case "rename":
		if filepath.Base(path) == "state.json" {
			w.room = 2 // the one before goes
		}
	case "remove":
		if filepath.Base(filepath.Dir(path)) == "slots" {
			w.room = 2 // a file and its data
			if name := castName(digestInName(path)); name != "" && name != "?" {
				w.gave[name] = true
			}
		}
	case "create", "write", "link", "mkdir", "reserve":
		if w.room == 0 {
			return &fs.PathError{Op: op, Path: path, Err: syscall.ENOSPC}
		}
		w.room--
	}
	return nil
}

func (w *world) ctx() context.Context { return context.Background() }

func (w *world) config(trial bool) Config {
	cfg := Config{Target: w.path, Trust: UnsignedChecksum("test")}
	if trial {
		cfg.Trial = &Trial{Starts: 3, Deadline: 10 * time.Minute}
	}
	return cfg
}

// updater is that of a command line, or of a process that runs the target's file.
func (w *world) updater(own, trial bool) *Updater {
	u, err := newUpdater(w.config(trial), w.sys)
	require.NoError(w.t, err)
	u.own, u.running = own, nil
	if own {
		u.running, err = os.Lstat(w.path)
		require.NoError(w.t, err)
	}
	return u
}

func (w *world) guard() *Helper {
	t, err := openTarget(w.path, nil, w.sys)
	require.NoError(w.t, err)
	return &Helper{t}
}

func (w *world) release(name string) Release {
	data := cast()[name]
	asset := func(n string, b []byte) Asset {
		return Asset{Name: n, URL: "https://example.com/" + name + "/" + n, Size: int64(len(b)), Open: func(context.Context, Position) (Body, error) {
			w.downloads[n]++
			return Body{ReadCloser: io.NopCloser(bytes.NewReader(b)), Size: int64(len(b))}, nil
		}}
	}
	return Release{Version: name, Assets: []Asset{asset("app", data)}, Lookup: func(n string) (Asset, error) {
		if n != "app.sha256" {
			return Asset{}, ErrNotFound
		}
		return asset(n, []byte(digestOf(data).Hex()+"  app\n")), nil
	}}
}

// at returns what is at the target: a program, "" when it is gone, "?" for anything else.
func (w *world) at() string { return fileName(w.path) }

func fileName(path string) string {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		return "?"
	}
	return castName(digestOf(data))
}

func (w *world) natureOf(name string) nature {
	if strings.HasPrefix(name, "p") {
		return w.natures[name[1]-'0']
	}
	return good
}

// digestInName returns what the slot at path is for, the zero digest for another file.
func digestInName(path string) checksum.Digest {
	d, _ := checksum.ParseDigest(filepath.Base(path))
	return d
}

func program(n int) string { return fmt.Sprintf("p%d", n%castPrograms) }

// possible are the actions that make sense now.
func (w *world) possible() []string {
	all := []string{"apply by hand", "install", "rollback", "clear", "api", "disk", "spoil slot", "spoil record", "foreign", "mv rollback", "delete", "shift", "pass", "reboot"}
	often := func(names ...string) {
		for range 4 {
			all = append(all, names...)
		}
	}
	if w.timer {
		often("tick")
	}
	if w.proc == nil {
		often("start", "start", "start")
		return all
	}
	all = append(all, "kill", "stop", "watchdog")
	if w.proc.u == nil {
		return all
	}
	often("apply", "apply")
	n := w.natureOf(w.proc.name)
	if n.healthy() && (n == good || w.api) {
		often("confirm", "confirm")
		if !w.proc.u.stale() { // an operator who has seen that it works
			all = append(all, "confirm outside")
		}
	}
	if n != mute && w.proc.start.OnTrial {
		often("guard")
	}
	return all
}

// act does one step, faults included. It reports whether a fault happened.
func (w *world) act(s step) (faulted bool) {
	w.hand, w.cut = false, false
	w.armed, w.dead, w.room = s.at, false, 0
	if s.fault == "" {
		w.armed = 0
	}
	w.perform(s)
	faulted = w.dead || s.fault != ""
	w.armed, w.dead = 0, false
	switch {
	case s.fault == "kill":
		w.proc = nil
	case s.fault == "power", s.do == "reboot":
		w.powerCut(s.seed)
		faulted = true
	}
	return faulted
}

func (w *world) perform(s step) {
	switch s.do {
	case "apply":
		w.apply(w.proc.u, program(s.n))
	case "apply by hand":
		w.apply(w.updater(false, true), program(s.n))
	case "install":
		w.install(program(s.n))
	case "start":
		w.start()
	case "kill":
		w.ended(Ending{Detail: "signal KILL"}, s.n%2 == 0)
	case "watchdog":
		w.ended(Ending{Hung: true}, true)
	case "stop":
		w.stop()
	case "confirm":
		w.confirm(w.proc.u.Confirm, w.proc.name, w.proc.u.stale())
	case "confirm outside":
		w.confirm(func(ctx context.Context) error { return w.guard().Confirm(ctx, ConfirmOptions{Force: true}) }, w.proc.name, w.proc.u.stale())
	case "guard":
		w.guardEnds()
	case "tick":
		w.tick()
	case "rollback":
		w.rollback(s.n)
	case "clear":
		w.clear(s.n)
	case "api":
		w.api = !w.api
	case "disk":
		w.full = !w.full
	case "pass":
		w.clock.pass(time.Duration(s.n%16) * time.Minute)
	case "shift", "reboot": // the twin's clock; the power cut that follows
	default:
		w.byHand(s)
	}
}

// expect fails for an error that none of the given ones explains, unless the
// machine is gone or the disk is full.
func (w *world) expect(what string, err error, ok ...error) {
	switch {
	case err == nil, w.dead:
		return
	case w.full && isErr(err, ErrNoSpace):
		return
	case slices.ContainsFunc(ok, func(o error) bool { return errors.Is(err, o) }):
		return
	}
	w.t.Errorf("%s: %v", what, err)
	w.t.FailNow()
}

func (w *world) apply(u *Updater, name string) {
	w.desired = name
	w.kept = ""
	res, err := u.Apply(w.ctx(), w.release(name))
	w.expect("apply", err, ErrRejected, ErrOnTrial, ErrNoTarget, ErrDamaged)
	if err == nil && !res.OnTrial && res.Outcome == Updated {
		w.confirmed[name] = true // there was nothing to go back to
	}
}

// install is an update without a trial, which an operator answers for.
func (w *world) install(name string) {
	if !w.natureOf(name).healthy() {
		return
	}
	w.hand, w.kept, w.desired = true, "", name
	w.confirmed[name] = true
	_, err := w.updater(false, false).Apply(w.ctx(), w.release(name))
	if err == nil || w.dead { // what failed before is the operator's choice now
		delete(w.failed, name)
		delete(w.retried, name)
	}
	w.expect("install", err, ErrRejected, ErrOnTrial, ErrNoTarget, ErrDamaged)
}

// start is what a supervisor does.
func (w *world) start() {
	if w.helper {
		_, err := w.guard().Pre(w.ctx())
		w.expect("pre", err, ErrDamaged, ErrNoTarget, fs.ErrNotExist)
		if w.dead {
			return // nothing is started any more
		}
	}
	name := w.at()
	if name == "" {
		return
	}
	w.started(name)
	switch n := w.natureOf(name); {
	case n == noexec:
		w.ended(Ending{NotExecuted: true}, true)
		return
	case n == crash:
		w.ended(Ending{Detail: "status 1"}, true)
		return
	case n == hang:
		w.proc = &proc{name: name}
		return
	}
	u := w.updater(true, true)
	s, err := u.Begin(w.ctx())
	w.expect("begin", err, ErrDamaged, ErrNoTarget, fs.ErrNotExist)
	if w.dead {
		return
	}
	if s.OnTrial && !w.helper {
		w.counted()
	}
	w.proc = &proc{name: name, u: u, start: s}
	switch {
	case s.Restart:
		w.ended(Ending{}, true)
	case w.natureOf(name) == exits:
		w.ended(Ending{Detail: "status 2"}, true)
	}
}

// started notes the start of name for I3 and I4.
func (w *world) started(name string) {
	r, err := w.read()
	onTrial := err == nil && r.Phase == phaseTrial && castName(r.Trial.Candidate.SHA256) == name
	if w.helper && onTrial {
		w.counted()
	}
	if !onTrial && !w.confirmed[name] {
		w.fail("I4", "%s was started, was never confirmed, and no record has it on trial", name)
	}
}

func (w *world) counted() {
	r, err := w.read()
	if err != nil || r.Trial == nil || r.Trial.Max == 0 {
		return
	}
	if w.trial != r.Trial.ID {
		w.trial, w.starts = r.Trial.ID, 0
	}
	w.starts++
	if w.starts-r.Trial.Refunds > r.Trial.Max && !w.spoiled[castName(r.Trial.Fallback)] {
		w.fail("I3", "%d starts, %d taken back, at most %d allowed", w.starts, r.Trial.Refunds, r.Trial.Max)
	}
}

// ended is the end of the process; seen: the helper's Post runs.
func (w *world) ended(e Ending, seen bool) {
	w.proc = nil
	if w.helper && seen {
		w.expect("post", w.guard().Post(w.ctx(), e))
	}
}

// stop is an orderly one.
func (w *world) stop() {
	p := w.proc
	if !w.helper && p.u != nil {
		w.expect("stopped", p.u.Stopped(w.ctx()))
	}
	w.ended(Ending{Orderly: true}, true)
}

func (w *world) confirm(confirm func(context.Context) error, name string, stale bool) {
	r, _ := w.read()
	if !stale && r.Phase == phaseTrial && castName(r.Trial.Candidate.SHA256) == name && !r.Trial.Expired {
		w.confirmed[name] = true // it may take effect whatever comes
	}
	err := confirm(w.ctx())
	w.expect("confirm", err, ErrExpired, ErrNoTarget)
	if err != nil || stale || w.dead {
		return
	}
	if r, rerr := w.read(); rerr == nil && r.Phase == phaseStable && w.at() == name {
		w.kept, w.confirmed[name] = name, true
		for f := range w.failed {
			w.well[f] = true
		}
		delete(w.failed, name)
	}
}

func (w *world) guardEnds() {
	err := w.proc.u.Guard(w.ctx())
	w.expect("guard", err, ErrExpired)
	if err != nil && !w.dead {
		w.ended(Ending{Detail: "status 3"}, true)
	}
}

// tick is the timer, with the restart that it asks for.
func (w *world) tick() {
	c, err := w.guard().Tick(w.ctx())
	w.expect("tick", err, ErrDamaged)
	if !c.Restart || w.dead {
		return
	}
	if w.proc != nil {
		w.ended(Ending{Orderly: true}, true)
	}
	if w.dead {
		return
	}
	w.expect("restarted", w.guard().Restarted(w.ctx()))
}

func (w *world) rollback(n int) {
	w.hand, w.kept = true, ""
	u := w.updater(false, true)
	if n%2 == 0 && w.proc != nil && w.proc.u != nil {
		u = w.proc.u
	}
	_, err := u.Rollback(w.ctx(), RollbackOptions{Reason: "by hand", KeepAllowed: n%3 == 0})
	w.expect("rollback", err, ErrNoPrevious, ErrDamaged, fs.ErrNotExist)
}

func (w *world) clear(n int) {
	opts := ClearOptions{All: n%2 == 0}
	if !opts.All {
		opts.Digest = digestNamed(program(n))
	}
	for name := range cast() { // it may take effect whatever comes
		if opts.All || opts.Digest.Equal(digestNamed(name)) {
			delete(w.failed, name)
			delete(w.retried, name)
		}
	}
	_, err := w.updater(false, true).Clear(w.ctx(), opts)
	w.expect("clear", err)
}

// byHand is what an operator does with the files themselves, or bad memory.
func (w *world) byHand(s step) {
	w.hand = true
	w.armed = 0
	full := w.full
	w.full = false // the operator finds room
	defer func() { w.full = full }()
	t := w.guard().target
	switch s.do {
	case "foreign":
		w.kept = ""
		w.losing(w.at())
		name := fmt.Sprintf("f%d", s.n%castForeign)
		w.replace(name)
		w.gone = false
	case "mv rollback":
		if name := fileName(t.rollback); name == "" || name == "?" || t.same(t.rollback, t.target) {
			return
		}
		w.kept = ""
		w.losing(w.at())
		w.adopted(fileName(t.rollback))
		require.NoError(w.t, w.sys.rename(t.rollback, t.target))
		w.gone = false
	case "delete":
		if w.at() == "" {
			return
		}
		w.kept = ""
		w.losing(w.at())
		require.NoError(w.t, w.sys.remove(t.target))
		w.gone = true
	case "spoil slot":
		w.spoilSlot(s)
		return
	case "spoil record":
		w.spoilRecord(s)
		return
	default:
		panic(s.do)
	}
	require.NoError(w.t, w.sys.syncDir(t.dir))
}

// adopted says that an operator's act makes name count as confirmed.
func (w *world) adopted(name string) {
	if name == "" || name == "?" {
		return
	}
	w.confirmed[name] = true
	w.badByHand = w.badByHand || !w.natureOf(name).healthy()
}

// losing notes a program whose last file may just go.
func (w *world) losing(name string) {
	if name == "" || name == "?" {
		return
	}
	n := w.lossy.durable[w.guard().target.slot(digestNamed(name))]
	if n == nil || castName(digestOf(n.flushed)) != name {
		w.spoiled[name] = true
	}
}

func (w *world) replace(name string) {
	tmp := filepath.Join(w.dir, ".new")
	f, err := w.sys.create(tmp)
	require.NoError(w.t, err)
	_, err = f.Write(cast()[name])
	require.NoError(w.t, err)
	require.NoError(w.t, f.Chmod(0o755))
	require.NoError(w.t, f.Sync())
	require.NoError(w.t, f.Close())
	require.NoError(w.t, w.sys.rename(tmp, w.path))
}

// spoilSlot flips a bit of a slot whose file is not the one that runs, nor would
// after a power cut.
func (w *world) spoilSlot(s step) {
	if w.corrupt {
		return // as in spoilRecord: two damages at once that nobody could tell
	}
	t := w.guard().target
	names, err := w.sys.readDir(t.slots)
	if err != nil {
		return
	}
	names = slices.DeleteFunc(names, func(n string) bool {
		slot := filepath.Join(t.slots, n)
		return len(n) != 64 || t.same(slot, t.target) || w.lossy.now[slot] == w.lossy.durable[t.target]
	})
	if len(names) == 0 {
		return
	}
	path := filepath.Join(t.slots, names[s.n%len(names)])
	if name := fileName(path); name != "?" {
		w.spoiled[name] = true
	}
	w.flip(path, 2000+int(s.seed%1000))
}

func (w *world) spoilRecord(s step) {
	t := w.guard().target
	fi, err := os.Lstat(t.record())
	if err != nil || fileName(t.rollback) == "?" && t.slotOf(t.rollback).IsZero() {
		return // two damages at once that nobody could tell: nothing else says what the way back was
	}
	w.corrupt = true
	w.kept = ""
	w.adopted(w.at())
	for path, n := range w.lossy.durable { // they may be taken for good ones, also when a power cut brings them back
		if n != nil && filepath.Dir(path) == t.slots {
			w.adopted(castName(digestOf(n.flushed)))
		}
	}
	for path := range w.lossy.now {
		if filepath.Dir(path) == t.slots {
			w.adopted(fileName(path))
		}
	}
	clear(w.failed)
	clear(w.retried)
	const digit = len(`{"format":`) // another number there means a newer format, which is left alone
	at := int(s.seed % uint64(fi.Size()))
	if at == digit {
		at++
	}
	w.flip(t.record(), at)
}

// flip changes one bit of a file, on the disk too.
func (w *world) flip(path string, at int) {
	data, err := os.ReadFile(path)
	require.NoError(w.t, err)
	data[at%len(data)] ^= 4
	fi, err := os.Lstat(path)
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(path, data, 0o600))
	require.NoError(w.t, os.Chtimes(path, fi.ModTime(), fi.ModTime())) // bad memory changes no time
	if n := w.lossy.now[path]; n.flushed != nil {
		n.flushed = data
	}
}

// survivors chooses what of the pending changes survives.
func (w *world) survivors(seed uint64) []bool {
	n := len(w.lossy.pending)
	rnd := rand.New(rand.NewPCG(seed, 7))
	some := make([]bool, n)
	for i := range some {
		switch seed % 4 {
		case 0:
		case 1:
			some[i] = true
		default:
			some[i] = rnd.IntN(2) == 0
		}
	}
	return some
}

// powerCut is the end of this boot and the beginning of the next.
func (w *world) powerCut(seed uint64) {
	w.boots++
	w.cut = true
	dir := fmt.Sprintf("%s.%d", strings.SplitN(w.dir, ".", 2)[0], w.boots)
	require.NoError(w.t, os.Mkdir(dir, 0o755))
	w.lossy.after(w.t, dir, w.survivors(seed))
	require.NoError(w.t, os.RemoveAll(w.dir))
	w.mount(dir)
	w.proc = nil
	w.clock.boot = fmt.Sprintf("boot%d", w.boots)
	w.clock.mono = time.Duration(seed%3) * time.Minute
}

func (w *world) read() (record, error) { return w.guard().target.read() }

// settle lets the machine run without further faults, as L1 wants it.
func (w *world) settle() {
	w.helper, w.timer, w.api, w.full = true, true, true, false
	for range 150 {
		switch p := w.proc; {
		case p == nil:
			w.act(step{do: "start"})
		case w.at() != p.name || p.u != nil && p.u.stale(): // it leaves, or its supervisor restarts it
			w.act(step{do: "kill"})
		case p.u == nil || w.natureOf(p.name) == mute:
			w.clock.pass(11 * time.Minute)
			w.act(step{do: "tick"})
			if r, err := w.read(); w.badByHand && w.proc == p && err == nil && r.Phase == phaseTrial && castName(r.Trial.Fallback) == p.name {
				w.act(step{do: "kill"}) // nobody watches an operator's choice that came back on a full disk, but the operator
			}
		case w.natureOf(p.name) == sick:
			w.act(step{do: "guard"})
			if w.proc == p { // it began on a full disk, and has no trial to watch
				w.act(step{do: "tick"})
				if r, err := w.read(); w.proc == p && err == nil && r.Phase == phaseTrial && w.spoiled[castName(r.Trial.Fallback)] {
					w.act(step{do: "kill"}) // there is nothing to go back to: the next start ends the trial
				}
			}
		default:
			w.act(step{do: "confirm"})
			w.check()
			r, err := w.read()
			if err == nil && r.Phase == phaseTrial && r.Trial.Max > 0 && !r.Trial.Expired {
				break
			}
			w.kept = ""
			_, err = p.u.Apply(w.ctx(), w.release(w.desired))
			if at := w.at(); !p.u.stale() && at == p.name && (err == nil || isErr(err, ErrRejected)) {
				w.checkSettled(p.name)
				return
			}
		}
		w.check()
		if w.badByHand && w.proc != nil && !w.natureOf(w.proc.name).healthy() {
			if r, err := w.read(); err != nil || r.Phase != phaseTrial {
				return // an operator's choice stays
			}
		}
		if w.at() == "" && w.proc == nil && w.spoiledAll() {
			return
		}
		if w.badByHand && w.proc == nil && !w.natureOf(w.at()).healthy() {
			if r, err := w.read(); err != nil || r.Phase != phaseTrial {
				return
			}
		}
	}
	if r, err := w.read(); w.badByHand && err == nil && (w.bad(r.Current) || r.Phase == phaseTrial && !w.natureOf(castName(r.Trial.Fallback)).healthy()) {
		return // the operator's choice never runs for long enough to be left for another
	}
	w.fail("L1", "does not settle")
}

func (w *world) bad(e *entry) bool {
	return e != nil && !w.natureOf(castName(e.SHA256)).healthy()
}

// spoiledAll reports whether a deleted program has no whole copy left to put back.
func (w *world) spoiledAll() bool {
	r, err := w.read()
	return err != nil || r.Current == nil || !w.guard().target.intact(r.Current.SHA256)
}

func (w *world) checkSettled(name string) {
	if !w.confirmed[name] || !w.natureOf(name).healthy() && !w.badByHand {
		w.fail("L1", "settled on %s, which was never confirmed", name)
	}
}

func (w *world) fail(invariant, format string, args ...any) {
	w.t.Helper()
	r, err := w.read()
	text := ""
	if line, eerr := encodeRecord(r); eerr == nil && err == nil {
		text = string(line)
	}
	w.t.Errorf("%s: %s\nat the target: %s; record: %v %s", invariant, fmt.Sprintf(format, args...), w.at(), err, text)
	w.t.FailNow()
}

// normal is what must be the same whatever the wall clock says.
func (w *world) normal() string {
	r, err := w.read()
	if err != nil {
		return err.Error()[:6] + w.at()
	}
	strip := func(e *entry) {
		if e != nil && e.Stat != nil {
			e.Stat = &stamp{}
		}
	}
	strip(r.Current)
	strip(r.Spare)
	for i := range r.Good {
		strip(&r.Good[i])
	}
	if r.Trial != nil {
		strip(&r.Trial.Candidate)
		r.Trial.ID = ""
		if r.Trial.Pre != "" {
			r.Trial.Pre = "x"
		}
	}
	if r.Last != nil {
		r.Last.At = time.Time{}
	}
	line, err := plainJSON(r)
	require.NoError(w.t, err)
	return fmt.Sprintf("%s target=%s downloads=%v", line, w.at(), slices.Sorted(maps.Keys(w.downloads)))
}
