package selfupdate

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The trial as a small machine of pure functions, in whole actions, written from
// docs/design.md ("On trial", "The verdict") and from the model of the durable
// order, not from the code. Where it differs from that model on purpose:
//   - there is no phase "reverting": a trial that is expired or has used up its
//     starts is the intent to go back;
//   - a failure is no plain quarantine: it has a verdict, and a trial may be tried
//     again (see sentence);
//   - a start that ended orderly is taken back (refunds);
//   - Tick goes back itself;
//   - Rollback and Clear, which the model has not.

const (
	modelStarts   = 3
	modelDeadline = 10 * time.Minute
)

// abstract is the state: the model's Rec, what is at the target and at the way
// back, the process, and the time. Programs have the names of the cast.
type abstract struct {
	trial     bool
	cur       string
	good      []string // the programs before it, newest first
	cand, fb  string
	id        int // of the trial
	started   int
	refunds   int
	expired   bool
	running   bool     // nobody saw the end of the last start
	mark      bool     // it was counted by Pre and did not get to Begin
	failures  []string // classes
	since     instant  // of the last start
	sentences map[string]sentence

	at, way string
	spare   string // kept to be tried again
	full    bool   // the disk is, during this action

	run  string // the program that runs, "" when none does
	sess int    // the trial that its Begin saw, 0 for none

	now    instant
	helper int // the boot in which a Pre was seen last
}

type instant struct {
	boot int
	mono time.Duration
}

// within reports whether d has not passed since i, as far as anybody can know.
func (i instant) within(now instant, d time.Duration) bool {
	return i.boot == now.boot && now.mono-i.mono <= d
}

// sentence is what is thought of a program that failed.
type sentence struct {
	verdict string
	tries   int // how often it was tried again
	counted int
	since   instant
}

func (s sentence) bars() bool {
	return s.verdict != "" && (s.verdict != verdictInconclusive || s.tries >= 3)
}

// act is one action. full: the disk is, for this one.
type act struct {
	do   string
	n    int
	full bool
}

func (a abstract) next(e act) abstract {
	a.good, a.failures, a.sentences = slices.Clone(a.good), slices.Clone(a.failures), maps.Clone(a.sentences)
	a.full = e.full
	switch e.do {
	case "apply":
		a.apply(program(e.n), e.full)
	case "pre":
		a.pre(e.full)
	case "begin":
		a.begin(e.full)
	case "confirm":
		if a.run == a.at && a.confirm(a.sess, e.full) { // else it is not its turn
			a.sess = 0 // nothing more to guard
		}
	case "confirm outside":
		a.confirm(0, e.full)
	case "guard":
		a.guard(e.full)
	case "tick":
		a.tick(e.full)
	case "rollback":
		a.rollback(e.n%2 == 1, e.full)
	case "clear":
		a.clear(e.n, e.full)
	case "stop":
		if mine := a.sess == a.id; mine {
			a.ended(Ending{Orderly: true}, e.full)
		}
		a.run = ""
	case "post":
		a.ended(endings[e.n%len(endings)], e.full)
		a.run = ""
	case "kill", "reboot":
		a.run = ""
	case "pass":
	default:
		panic(e.do)
	}
	return a
}

var endings = []Ending{{Orderly: true}, {NotExecuted: true}, {Hung: true}, {Detail: "status 1"}}

// apply is A4–A9. It finishes a trial that is over first, as a start does.
func (a *abstract) apply(v string, full bool) {
	if full || a.trial && !a.expired {
		return
	}
	if a.trial {
		a.back()
	}
	s := a.sentences[v]
	if v == a.cur || s.bars() {
		return
	}
	if s.verdict == verdictInconclusive {
		s.tries++
		a.sentences[v] = s
	}
	a.trial, a.id, a.cand, a.fb = true, a.id+1, v, a.cur
	a.started, a.refunds, a.expired, a.running, a.mark, a.failures = 0, 0, false, false, false, nil
	a.since = a.now
	a.at, a.way = v, a.cur
	if a.spare == v {
		a.spare = ""
	}
}

func (a *abstract) over() bool { return a.expired || a.started >= modelStarts }

// pre: before every start.
func (a *abstract) pre(full bool) {
	if !full {
		a.helper = a.now.boot
	}
	switch {
	case !a.trial:
	case a.over():
		a.back()
	case full:
		a.retreat()
	default:
		a.count()
		a.mark = true
		a.at, a.way = a.cand, a.fb // done again when a full disk or a power cut undid it
	}
}

// begin is the start itself, with what the program does first in it.
func (a *abstract) begin(full bool) {
	a.run, a.sess = a.at, 0
	switch {
	case !a.trial:
	case a.at == a.cand && a.mark && !a.expired: // Pre counted it
		a.mark = full
		a.sess = a.id
	case a.over():
		a.back()
	case a.at == a.fb: // the program before runs: nothing is rejected
		if !full {
			a.trial, a.spare = false, a.cand
		}
	case full:
		a.retreat()
	default:
		a.count()
		a.sess = a.id
	}
	if a.run != a.at { // it leaves
		a.run, a.sess = "", 0
	}
}

func (a *abstract) count() {
	a.close()
	a.started++
	a.running, a.since = true, a.now
}

// close notes the end of the last start, when nobody saw it.
func (a *abstract) close() {
	switch {
	case !a.running:
		return
	case a.since.boot != a.now.boot:
		a.failures = append(a.failures, classUnhealthy)
	case a.mark:
		a.failures = append(a.failures, classCrash)
	default:
		a.failures = append(a.failures, classUnhealthy)
	}
	a.running, a.mark = false, false
}

// retreat is the way back that allocates nothing. The trial goes on.
func (a *abstract) retreat() {
	if a.at != a.fb {
		a.at, a.way = a.fb, ""
	}
}

// back: the program before is restored, then it is recorded. On a full disk the
// candidate's own room does for that.
func (a *abstract) back() {
	a.retreat()
	a.close()
	verdict := verdictPending
	crashed := len(a.failures) > 0 && !slices.ContainsFunc(a.failures, func(c string) bool { return c != classExec && c != classCrash })
	if !a.expired && crashed {
		verdict = verdictGuilty
	}
	a.reject(a.cand, verdict)
	a.trial = false
	if a.full {
		a.lose(a.cand)
	}
}

func (a *abstract) lose(v string) {
	a.forget(v)
	if a.spare == v {
		a.spare = ""
	}
}

func (a *abstract) reject(v, verdict string) {
	old := a.sentences[v]
	s := sentence{verdict: verdict, tries: old.tries, counted: old.counted}
	a.sentences[v] = s
	if verdict == verdictPending {
		s.since = a.now
		a.sentences[v] = s
		if !a.full { // else its room was needed
			a.spare = v
		}
		return
	}
	a.lose(v)
}

func (a *abstract) forget(v string) {
	a.good = slices.DeleteFunc(a.good, func(g string) bool { return g == v })
}

// confirm is that of a process that began in trial id; 0: from outside. It reports
// whether it returns nil.
func (a *abstract) confirm(id int, full bool) bool {
	switch {
	case full && !(a.trial && (a.spare != "" && !a.needs(a.spare) || slices.ContainsFunc(a.good, func(g string) bool { return !a.needs(g) }))):
		return !a.trial && !a.pending()
	case !a.trial:
		a.resolve()
		return true
	case a.at == a.cand && (a.expired || id != 0 && id != a.id):
		return false
	case full && a.spare != "" && !a.needs(a.spare):
		a.lose(a.spare)
	case full: // they make room for it
		a.good = slices.DeleteFunc(a.good, func(g string) bool { return !a.needs(g) })
	}
	if a.at == a.fb { // left over by a full disk
		if a.over() {
			a.back()
			a.resolve()
			return true
		}
		a.trial, a.spare = false, a.cand
		return true
	}
	a.good = slices.DeleteFunc(append([]string{a.cur}, a.good...), func(g string) bool { return g == a.cand })
	a.good = a.good[:min(len(a.good), 2)]
	a.cur, a.trial, a.spare = a.cand, false, ""
	if a.sentences[a.cur].verdict == verdictInconclusive {
		delete(a.sentences, a.cur)
	}
	a.resolve()
	return true
}

func (a *abstract) needs(v string) bool { return v == a.cur || a.trial && (v == a.cand || v == a.fb) }

func (a *abstract) pending() bool {
	for _, s := range a.sentences {
		if s.verdict == verdictPending {
			return true
		}
	}
	return false
}

// resolve: the program that runs is well, which tells what failed before it. (The
// model's quarantine never ends.)
func (a *abstract) resolve() {
	for v, s := range a.sentences {
		if s.verdict != verdictPending {
			continue
		}
		if s.since.within(a.now, modelDeadline) {
			s.counted++
		}
		s.verdict, s.since = verdictInconclusive, instant{}
		a.sentences[v] = s
		if s.counted >= 2 {
			s.verdict = verdictGuilty
			a.sentences[v] = s
			a.forget(v)
		}
		if s.bars() && a.spare == v {
			a.spare = ""
		}
	}
}

func (a *abstract) expire() {
	a.expired = true
	a.running, a.mark = false, false
}

// guard at the deadline: it is recorded, where there is room, and the program leaves.
func (a *abstract) guard(full bool) {
	mine := a.trial && a.sess == a.id
	if mine && !full && !a.expired {
		a.expire()
	}
	if mine || a.run != a.at {
		a.run = ""
	}
}

// tick goes back itself, and the program that has to make way is restarted.
func (a *abstract) tick(full bool) {
	if !a.trial {
		return
	}
	here, watched := a.at == a.cand, a.helper == a.now.boot
	begun := a.started > 0 || a.refunds > 0 || len(a.failures) > 0
	switch {
	case a.expired:
	case a.since.boot != a.now.boot: // its time runs from now
		if !full {
			a.close()
			a.running, a.since = here && !watched, a.now
		}
		return
	case !a.running && (watched || begun): // it is known not to run
		return
	case a.now.mono-a.since.mono < modelDeadline:
		return
	case !here: // it does not run, or no more, which is not its fault
		if !full {
			a.trial, a.spare = false, a.cand
		}
		return
	}
	if !a.expired {
		a.expire()
	}
	a.back()
	if here {
		a.run = ""
	}
}

// rollback goes back by hand: from the candidate, or else one program further.
func (a *abstract) rollback(keep, full bool) {
	if a.trial && a.expired { // it is on its way back already: that is this one
		a.back()
		if keep {
			delete(a.sentences, a.cand)
			return
		}
		a.reject(a.cand, verdictManual)
		return
	}
	left, to := a.cand, a.fb
	if !a.trial {
		i := slices.IndexFunc(a.good, func(g string) bool { return !a.sentences[g].bars() })
		if i < 0 || full && a.way != a.good[i] {
			return
		}
		left, to = a.cur, a.good[i]
		a.good = slices.Clone(a.good[i+1:])
		a.cur = to
	}
	if a.at != to {
		a.at = to
		if a.way == to {
			a.way = ""
		}
	}
	a.trial = false
	switch {
	case !keep:
		a.reject(left, verdictManual)
	case full: // its room was needed
		a.lose(left)
	}
}

func (a *abstract) clear(n int, full bool) {
	if full {
		return
	}
	for v := range a.sentences {
		if n%2 == 0 || v == program(n) {
			delete(a.sentences, v)
		}
	}
}

// ended is what Post and Stopped say of an end.
func (a *abstract) ended(e Ending, full bool) {
	if full || !a.trial || !a.running || a.expired || a.at != a.cand {
		return
	}
	class := classCrash
	switch {
	case e.Orderly && a.refunds < modelStarts:
		a.started--
		a.refunds++
		a.running, a.mark = false, false
		return
	case e.Hung:
		class = classHang
	case e.Orderly, !a.mark:
		class = classUnhealthy
	case e.NotExecuted:
		class = classExec
	}
	a.failures = append(a.failures, class)
	a.running, a.mark = false, false
}

// visible is what can be compared, in words.
func (a abstract) visible() string {
	if !a.trial {
		a.cand, a.fb, a.started, a.expired, a.refunds = "", "", 0, false, 0
	}
	held := map[string]string{}
	for v, s := range a.sentences {
		held[v] = fmt.Sprintf("%s, %d tries, bars: %v", s.verdict, s.tries, s.bars())
	}
	return fmt.Sprintf("spare %q, trial %v: current %s, good %v, candidate %s, fallback %s, %d started, %d taken back, expired %v; rejected %v; at the target %s, way back %s; running %q",
		a.spare, a.trial, a.cur, a.good, a.cand, a.fb, a.started, a.refunds, a.expired, held, a.at, a.way, a.run)
}

// rapidTB is a *rapid.T for what wants a testing.TB.
type rapidTB struct {
	testing.TB
	tester
}

func (t rapidTB) Errorf(format string, args ...any) { t.tester.Errorf(format, args...) }
func (t rapidTB) FailNow()                          { t.tester.FailNow() }
func (t rapidTB) Helper()                           {}

// pair is a machine of the real core and the abstract one beside it.
type pair struct {
	*machine
	abs  abstract
	boot int
	proc *Updater
	runs string // its program
	full bool
	room int // operations that the full disk has room for
}

func newPair(t testing.TB, dir string) *pair {
	path := filepath.Join(dir, "app")
	require.NoError(t, os.WriteFile(path, cast()["p0"], 0o755))
	p := &pair{abs: abstract{cur: "p0", at: "p0", sentences: map[string]sentence{}, id: 100, helper: -1}}
	p.machine = newMachine(t, path, hooked(system(), p.hook))
	p.sync()
	p.act(act{do: "apply", n: 1}) // from now on there is a record
	return p
}

func (p *pair) hook(op, path string) error {
	if !p.full {
		return nil
	}
	switch op {
	case "rename":
		if filepath.Base(path) == "state.json" {
			p.room = 2 // the one before goes
		}
	case "remove":
		if filepath.Base(filepath.Dir(path)) == "slots" {
			p.room = 2 // a file and its data
		}
	case "create", "write", "link", "mkdir", "reserve":
		if p.room == 0 {
			return &fs.PathError{Op: op, Path: path, Err: syscall.ENOSPC}
		}
		p.room--
	}
	return nil
}

// sync tells the abstract machine the time, which is nobody's decision.
func (p *pair) sync() {
	p.clock.boot = fmt.Sprintf("boot%d", p.boot)
	p.abs.now = instant{p.boot, p.clock.mono}
}

// possible are the actions that make sense now. A process whose file is not at the
// target any more only says its last words.
func (p *pair) possible() []string {
	last := []string{"confirm", "stop", "kill", "post"}
	if p.abs.sess != 0 {
		last = append(last, "guard")
	}
	if p.abs.run != "" && p.abs.run != p.abs.at {
		return last
	}
	all := []string{"rollback", "clear", "reboot", "pass", "pass", "tick", "tick", "confirm outside", "apply"}
	if p.abs.run == "" {
		return append(all, "pre", "pre", "pre", "begin", "begin", "begin", "begin", "post")
	}
	return append(append(all, last...), "apply", "confirm", "guard", "apply")
}

// act does one action in both and compares.
func (p *pair) act(e act) {
	p.t.Helper()
	if e.do == "guard" && p.abs.sess == 0 {
		e.do = "kill"
	}
	before := p.abs
	p.sync()
	p.abs = p.abs.next(e)
	p.full, p.room = e.full, 0
	p.perform(e)
	p.full = false
	p.sync()
	if want, got := p.abs.visible(), p.seen().visible(); want != got {
		p.t.Errorf("%+v\nfrom %s\nis   %s\nnot  %s", e, before.visible(), got, want)
		p.t.FailNow()
	}
	r := p.record()
	for _, d := range r.slots() {
		require.True(p.t, p.helper().target.intact(d), "%+v: the record names %s, which is not there", e, castName(d))
	}
}

func (p *pair) perform(e act) {
	ctx := p.t.Context()
	var err error
	switch e.do {
	case "apply":
		_, err = p.process().Apply(ctx, releaseWith(program(e.n), cast()[program(e.n)]).Release)
	case "pre":
		_, err = p.helper().Pre(ctx)
	case "begin":
		var s Start
		p.proc, p.runs = p.process(), fileName(p.path)
		if s, err = p.proc.Begin(ctx); s.Restart {
			p.proc = nil
		}
	case "confirm":
		if err = p.proc.Confirm(ctx); err == nil && p.abs.sess != 0 && p.abs.run == p.abs.at {
			assert.False(p.t, p.abs.trial, "Confirm said nil")
		}
	case "confirm outside":
		err = p.helper().Confirm(ctx, ConfirmOptions{Force: true})
	case "guard":
		if err = p.proc.Guard(ctx); errors.Is(err, ErrExpired) {
			p.proc = nil
		}
	case "tick":
		err = p.tick(e)
	case "rollback":
		_, err = p.process().Rollback(ctx, RollbackOptions{Reason: "by hand", KeepAllowed: e.n%2 == 1})
		p.full = false
		err = errors.Join(err, p.helper().Restarted(ctx)) // the operator sees to that, not the next tick
	case "clear":
		opts := ClearOptions{All: e.n%2 == 0}
		if !opts.All {
			opts.Digest = digestNamed(program(e.n))
		}
		_, err = p.process().Clear(ctx, opts)
	case "stop":
		if p.proc != nil {
			err = p.proc.Stopped(ctx)
		}
		p.proc = nil
	case "post":
		p.proc = nil
		err = p.helper().Post(ctx, endings[e.n%len(endings)])
	case "kill":
		p.proc = nil
	case "reboot":
		p.proc = nil
		p.boot++
		p.clock.mono = time.Duration(e.n) * time.Minute
	case "pass":
		p.clock.pass(time.Duration(e.n) * time.Minute)
	}
	for _, ok := range []error{ErrRejected, ErrOnTrial, ErrExpired, ErrNoPrevious} {
		if errors.Is(err, ok) {
			return
		}
	}
	if !e.full || !isErr(err, ErrNoSpace) {
		require.NoError(p.t, err, "%+v", e)
	}
}

// tick is the timer, with the restart that it asks for.
func (p *pair) tick(e act) error {
	c, err := p.helper().Tick(p.t.Context())
	if c.Restart {
		p.proc = nil
		err = errors.Join(err, p.helper().Restarted(p.t.Context()))
	}
	return err
}

// seen is what the real machine is, as an abstract one.
func (p *pair) seen() abstract {
	r := p.record()
	a := abstract{at: fileName(p.path), way: fileName(p.machine.helper().target.rollback), sentences: map[string]sentence{}}
	if r.Current != nil {
		a.cur = castName(r.Current.SHA256)
	}
	for _, e := range r.Good {
		a.good = append(a.good, castName(e.SHA256))
	}
	if r.Spare != nil {
		a.spare = castName(r.Spare.SHA256)
	}
	if tr := r.Trial; tr != nil {
		a.trial, a.cand, a.fb = true, castName(tr.Candidate.SHA256), castName(tr.Fallback)
		a.started, a.refunds, a.expired = tr.Started, tr.Refunds, tr.Expired
	}
	for i := range r.Rejected {
		j := &r.Rejected[i]
		s := sentence{verdict: j.Verdict, tries: j.Tries}
		assert.Equal(p.t, j.bars(), s.bars())
		a.sentences[castName(j.SHA256)] = s
	}
	if p.proc != nil {
		a.run = p.runs
	}
	return a
}

// TestPropertiesModel lets anything happen to a machine and to the abstract one
// beside it, and compares them after each action.
func TestPropertiesModel(t *testing.T) {
	checks(t, 150, 10000)
	runs, actions := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(fast(), "selfupdate-model-")
		require.NoError(r, err)
		defer func() { _ = os.RemoveAll(dir) }()
		p := newPair(rapidTB{t, r}, dir)
		runs++
		var course []act
		defer func() {
			if r.Failed() {
				r.Logf("%+v", course)
			}
		}()
		r.Repeat(map[string]func(*rapid.T){"act": func(r *rapid.T) {
			e := act{
				do:   rapid.SampledFrom(p.possible()).Draw(r, "do"),
				n:    rapid.IntRange(0, 14).Draw(r, "n"),
				full: rapid.IntRange(0, 7).Draw(r, "full") == 7,
			}
			actions++
			course = append(course, e)
			p.act(e)
		}})
	})
	t.Logf("%d machines, %d actions, each the same in both", runs, actions)
}

// TestPropertiesModelSequences are short runs that are worth a name.
func TestPropertiesModelSequences(t *testing.T) {
	then := func(parts ...[]act) []act { return slices.Concat(parts...) }
	do := func(names ...string) (all []act) {
		for _, n := range names {
			all = append(all, act{do: n})
		}
		return all
	}
	apply := func(n int) []act { return []act{{do: "apply", n: n}} }
	full := func(name string, n int) []act { return []act{{do: name, n: n, full: true}} }
	started := do("pre", "begin")
	confirmed := do("pre", "begin", "confirm")
	expired := do("pre", "begin", "guard", "pre", "begin")

	for _, tt := range []struct {
		name     string
		acts     []act // after p1 was installed over p0
		at       string
		trial    bool
		rejected map[string]sentence
	}{
		{"not confirmed in time, twice", then(expired, apply(1), do("confirm"), apply(1), expired, do("confirm"), apply(1)), "p0", false,
			map[string]sentence{"p1": {verdict: verdictGuilty, tries: 1}}},
		{"pending until the one before has confirmed", then(expired, apply(1)), "p0", false,
			map[string]sentence{"p1": {verdict: verdictPending}}},
		{"a reboot before that: it does not count", then(expired, do("reboot"), confirmed, apply(1), expired, do("confirm"), apply(1)), "p1", true,
			map[string]sentence{"p1": {verdict: verdictInconclusive, tries: 2}}},
		{"a full disk at a start, then room", then(full("pre", 0), full("begin", 0), do("kill"), confirmed), "p1", false, nil},
		{"a full disk at a start, and the one before gets to Begin", then(full("pre", 0), do("begin")), "p0", false, nil},
		{"a hang that a tick ends on a full disk is no crash", then(do("pre"), []act{{do: "pass", n: 10}}, full("tick", 0)), "p0", false,
			map[string]sentence{"p1": {verdict: verdictPending}}},
		{"crashes at the start", do("pre", "kill", "pre", "kill", "pre", "kill", "pre"), "p0", false,
			map[string]sentence{"p1": {verdict: verdictGuilty}}},
		{"rolled back in its trial, allowed again", then(started, do("rollback", "kill", "clear"), apply(1), confirmed), "p1", false, nil},
		{"rolled back in its trial, not allowed again", then(started, do("rollback", "kill"), apply(1)), "p0", false,
			map[string]sentence{"p1": {verdict: verdictManual}}},
		{"an old program again, rolled back on a full disk but allowed", then(confirmed, apply(0), full("rollback", 1), do("rollback")), "p1", false, nil},
		{"an old program again, confirmed on a full disk", then(confirmed, apply(2), confirmed, apply(1), started, full("confirm", 0)), "p1", false, nil},
		{"an old program again, on a full disk where nothing else can go", then(confirmed, apply(0), started, full("confirm", 0)), "p0", true, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, err := os.MkdirTemp(fast(), "selfupdate-model-")
			require.NoError(t, err)
			defer func() { _ = os.RemoveAll(dir) }()
			p := newPair(t, dir)
			for _, e := range tt.acts {
				p.act(e)
			}
			got := p.seen()
			assert.Equal(t, tt.at, got.at)
			assert.Equal(t, tt.trial, got.trial)
			if tt.rejected == nil {
				tt.rejected = map[string]sentence{}
			}
			assert.Equal(t, tt.rejected, got.sentences)
		})
	}
}

// TestGuardAndTick: whoever is first at the deadline, it is one failure.
func TestGuardAndTick(t *testing.T) {
	for _, first := range []string{"guard", "tick"} {
		t.Run(first, func(t *testing.T) {
			m := trialMachine(t)
			m.pre()
			u, _ := m.begin()
			m.clock.pass(10 * time.Minute)
			tick := func() {
				c, err := m.helper().Tick(t.Context())
				require.NoError(t, err)
				assert.True(t, c.Restart)
			}
			if first == "tick" {
				tick()
			}
			require.ErrorIs(t, u.Guard(t.Context()), ErrExpired)
			tick()
			require.ErrorIs(t, u.Confirm(t.Context()), ErrExpired)
			assert.Equal(t, "s1", m.at())
			m.pre()
			u, _ = m.begin()
			require.NoError(t, u.Confirm(t.Context()))
			r := m.record()
			require.Len(t, r.Rejected, 1)
			assert.Equal(t, verdictInconclusive, r.Rejected[0].Verdict)
			assert.Equal(t, 1, r.Rejected[0].Counted)
		})
	}
}

// A tick on a full disk asks for the restart until that was done.
func TestTickFullDisk(t *testing.T) {
	m := trialMachine(t)
	room, full := 0, true
	m.sys = hooked(m.sys, func(op, path string) error {
		switch op {
		case "remove":
			room = 9
		case "create", "write", "link":
			if room--; full && room < 0 {
				return &fs.PathError{Op: op, Path: path, Err: syscall.ENOSPC}
			}
		}
		return nil
	})
	full = false
	m.pre()
	m.clock.pass(10 * time.Minute)
	full = true
	c, err := m.helper().Tick(t.Context())
	require.NoError(t, err)
	assert.True(t, c.Restart)
	assert.Equal(t, classHang, m.record().Rejected[0].Class)
	c, err = m.helper().Tick(t.Context())
	require.NoError(t, err)
	assert.True(t, c.Restart, "it was not done yet")
}

// TestSwitchUndone: a power cut takes the switch back, but not the record of it.
func TestSwitchUndone(t *testing.T) {
	for _, helper := range []bool{true, false} {
		m, l, kill := lossyMachine(t, false)
		*kill = unflushedSwap()
		_, err := m.apply("s2")
		require.ErrorIs(t, err, errKilled)
		require.Equal(t, "s2", m.at())
		m = m.cut(l)
		require.Equal(t, "s1", m.at())
		require.Equal(t, phaseTrial, m.record().Phase)
		if helper {
			assert.True(t, m.pre().OnTrial)
		} else {
			_, s := m.begin() // of the program before: there is nobody to make the switch again
			assert.False(t, s.OnTrial || s.Restart)
			assert.Equal(t, phaseStable, m.record().Phase)
			assert.Empty(t, m.record().Rejected)
			rel := releaseOf(t, "s2", "s2")
			_, err = m.process().Apply(t.Context(), rel.Release)
			require.NoError(t, err)
			assert.Zero(t, rel.opened["app"], "it is still on the disk")
		}
		require.Equal(t, "s2", m.at())
		u, s := m.begin()
		assert.Equal(t, 2, s.Left)
		require.NoError(t, u.Confirm(t.Context()))
		assert.Equal(t, digests["s2"], m.record().Current.SHA256)
	}
}

// TestNothingLeftButSlots: without a record and a program, what is left on disk
// stays and can be gone back to.
func TestNothingLeftButSlots(t *testing.T) {
	m := trialMachine(t)
	require.NoError(t, m.helper().Confirm(t.Context(), ConfirmOptions{Force: true}))
	tg := m.helper().target
	require.NoError(t, os.WriteFile(tg.record(), []byte("damaged"), 0o600))
	require.NoError(t, os.Remove(m.path))
	m.cfg.AllowCreate = true
	u, err := newUpdater(m.cfg, m.sys)
	require.NoError(t, err)
	u.own = false
	_, err = u.Rollback(t.Context(), RollbackOptions{})
	require.ErrorIs(t, err, ErrNoPrevious)
	assert.True(t, tg.intact(digests["s1"]))
	assert.True(t, tg.intact(digests["s2"]))
	_, err = u.Apply(t.Context(), releaseOf(t, "s3", "s3").Release)
	require.NoError(t, err)
	require.Equal(t, "s3", m.at())
	_, err = u.Rollback(t.Context(), RollbackOptions{})
	require.NoError(t, err)
	assert.Contains(t, []string{"s1", "s2"}, m.at())
}

// TestPropertiesSeeds are the runs in which TestProperties found something.
func TestPropertiesSeeds(t *testing.T) {
	for _, c := range []course{
		{timer: true, steps: []step{ // rolled back on a full disk but allowed: its room was needed, so it is no way back
			{do: "apply", n: 14}, {do: "start"}, {do: "confirm"}, {do: "apply by hand"}, {do: "disk"}, {do: "rollback"},
		}},
		{steps: []step{ // killed in a rollback of a trial, when the candidate's slot had made room for its record
			{do: "apply by hand", n: 1}, {do: "disk", n: 12}, {do: "rollback", n: 2, fault: "kill", at: 19},
		}},
		{steps: []step{ // a damaged record whose successor is not flushed yet
			{do: "apply by hand", n: 1}, {do: "spoil record"}, {do: "apply by hand", n: 5, fault: "kill", at: 16}, {do: "clear", n: 2},
		}},
		{helper: true, steps: []step{ // left on a full disk for a program whose slot is damaged, and which somebody put there
			{do: "apply by hand", n: 1}, {do: "foreign", n: 15}, {do: "apply by hand", n: 15}, {do: "spoil slot", n: 1, seed: 4019},
			{do: "disk", n: 3}, {do: "foreign", n: 9}, {do: "rollback", n: 13, fault: "kill", at: 25},
		}},
		{natures: [castPrograms]nature{good, good, needsAPI, crash, exits}, helper: true, timer: true, steps: []step{ // a damaged way back whose slot was swept
			{do: "apply by hand", n: 1}, {do: "start", n: 2}, {do: "spoil slot", seed: 91}, {do: "apply", n: 3, fault: "power", at: 2, seed: 1},
			{do: "start"}, {do: "delete", n: 14}, {do: "guard", n: 4}, {do: "rollback"}, {do: "spoil record", n: 11, seed: 35},
			{do: "rollback", n: 1}, {do: "rollback", n: 7}, {do: "start", fault: "power", at: 1, seed: 2}, {do: "apply by hand", n: 12},
			{do: "mv rollback", n: 3}, {do: "mv rollback", n: 7}, {do: "foreign"}, {do: "tick", n: 13}, {do: "api"},
			{do: "tick", fault: "kill", at: 38}, {do: "install", n: 3}, {do: "install", n: 11},
		}},
		{helper: true, steps: []step{ // what failed on trial is installed for good, killed before its record, and then another one
			{do: "apply by hand", n: 1}, {do: "start", n: 14}, {do: "guard"}, {do: "start", n: 10}, {do: "confirm outside", n: 4},
			{do: "install", n: 6, fault: "kill", at: 33}, {do: "install"},
		}},
		{natures: [castPrograms]nature{good, good, hang, hang, good}, helper: true, timer: true, steps: []step{ // a hanging program that a damaged record made the way back
			{do: "start", n: 8}, {do: "apply by hand", n: 13}, {do: "spoil record", n: 1, seed: 1522}, {do: "apply by hand", n: 9},
			{do: "disk", n: 10}, {do: "start", n: 13},
		}},
		{natures: [castPrograms]nature{good, good, sick, good, good}, helper: true, timer: true, steps: append(slices.Clone(failing), // a power cut takes a trial back to the way back before it
			step{do: "start"}, step{do: "apply by hand", n: 1, fault: "kill", at: 28}, step{do: "disk"}, step{do: "reboot"}, step{do: "delete"})},
		{natures: [castPrograms]nature{needsAPI, good, mute, sick, good}, steps: []step{ // the same of one that is never well
			{do: "start", n: 4}, {do: "apply by hand", n: 3}, {do: "confirm", n: 4, fault: "power", at: 10, seed: 1}, {do: "spoil record", n: 9, seed: 30},
			{do: "start", n: 3}, {do: "apply", n: 4}, {do: "mv rollback", n: 2},
		}},
		{helper: true, timer: true, steps: []step{ // the way back is damaged, and a rollback to the one before that is cut off
			{do: "apply by hand", n: 1}, {do: "start", n: 4}, {do: "spoil record", n: 3, seed: 76}, {do: "apply by hand"}, {do: "rollback", n: 6},
			{do: "apply by hand", n: 7}, {do: "spoil slot", n: 8, seed: 2}, {do: "rollback", n: 14, fault: "power", at: 27, seed: 788},
		}},
		{timer: true, steps: []step{ // a power cut takes the record that ended a rollback, not the one that began it
			{do: "apply by hand", n: 4}, {do: "tick", n: 2, fault: "power", at: 25, seed: 6}, {do: "rollback", n: 1, fault: "kill", at: 28}, {do: "reboot", n: 8, seed: 2918},
		}},
		{helper: true, natures: [castPrograms]nature{good, crash}, steps: []step{ // a rollback that puts back what is gone, then a Confirm
			{do: "start"}, {do: "apply", n: 1}, {do: "rollback"}, {do: "delete"}, {do: "rollback", n: 3}, {do: "confirm"},
		}},
		{helper: true, steps: []step{ // killed before the slots were flushed, and then only they tell what was there
			{do: "install", n: 3}, {do: "install", n: 1, fault: "kill", at: 17}, {do: "spoil record", seed: 200},
		}},
		{helper: true, steps: []step{ // killed after the switch, and then somebody deletes it
			{do: "install", n: 5, fault: "power", at: 38, seed: 5}, {do: "foreign"}, {do: "install", n: 10, fault: "kill", at: 44}, {do: "delete", n: 7},
		}},
		{natures: [castPrograms]nature{good, exits, needsAPI, needsAPI, crash}, helper: true, steps: []step{ // a start on a full disk loses power after the spare made room
			{do: "disk", n: 9}, {do: "start", n: 11}, {do: "disk"}, {do: "confirm", n: 8, fault: "kill", at: 21}, {do: "apply by hand", n: 1},
			{do: "start", n: 1}, {do: "start"}, {do: "start", n: 2}, {do: "start", n: 5}, {do: "apply", n: 3}, {do: "disk", n: 1},
			{do: "kill", n: 7, fault: "kill", at: 6}, {do: "start", n: 1}, {do: "confirm", n: 15, fault: "power", at: 38, seed: 3907},
			{do: "start", n: 15, fault: "power", at: 10, seed: 85},
		}},
		{helper: true, steps: []step{ // the same of a rollback, and then somebody deletes what came back
			{do: "install", n: 1}, {do: "disk"}, {do: "rollback", n: 8, fault: "kill", at: 14}, {do: "disk"}, {do: "delete"},
		}},
		{timer: true, steps: []step{ // a record that is damaged and a program that is gone: nothing is swept
			{do: "apply by hand", n: 2}, {do: "start"}, {do: "spoil record", n: 10, seed: 3551}, {do: "spoil slot", seed: 681},
			{do: "delete"}, {do: "rollback"}, {do: "foreign", n: 15}, {do: "rollback", n: 15},
		}},
		{natures: [castPrograms]nature{needsAPI, hang, mute, good, exits}, timer: true, steps: []step{ // the candidate's slot made room for its own Confirm
			{do: "apply by hand", n: 14}, {do: "delete"}, {do: "foreign", n: 10}, {do: "apply by hand"}, {do: "start"}, {do: "disk"},
			{do: "confirm outside"}, {do: "delete"},
		}},
	} {
		dir, err := os.MkdirTemp(fast(), "selfupdate-properties-")
		require.NoError(t, err)
		tw := newTwins(t, dir, c)
		if c.steps[0].do == "apply" {
			tw.act(step{do: "start"})
		}
		for _, s := range c.steps {
			tw.act(s)
		}
		tw.settle()
		require.NoError(t, os.RemoveAll(dir))
	}
}
