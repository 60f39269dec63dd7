package selfupdate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A fleet of machines, each with the real core, a supervisor, a helper and its
// timer, told to run another version. Nothing sleeps: a machine's clock goes from
// one event to the next.

const (
	reconcileEvery = 3 * time.Minute
	tickEvery      = 30 * time.Second
	restartAfter   = 10 * time.Second // RestartSec
	firstReconcile = time.Second      // after a start
	goodRounds     = 3                // in a row, before a program confirms itself
	fleetDay       = 24 * time.Hour   // after which a machine must have settled
	applyAt        = 6 * time.Minute  // when the new version is wanted
)

// outage is when the API is away, from the beginning of a machine's day on.
type outage struct{ from, to time.Duration }

// member is one machine of the fleet.
type member struct {
	*machine
	bad     nature // of the new version here
	outages []outage
	start   time.Duration // of its day, by its clock

	proc      *Updater // nil: none runs
	runs      string   // "s1" or "s2"
	onTrial   bool
	until     time.Duration // when Guard says that the time is over
	next      struct{ start, reconcile, tick time.Duration }
	goods     int // rounds of its process without a fault, in a row
	downloads int
	trials    int
	settled   time.Duration // since then nothing changed
	err       error
}

func newMember(t *testing.T, dir string, bad nature, phase time.Duration, outages []outage) *member {
	m := &member{machine: newMachine(t, installedIn(t, dir, "s1"), system()), bad: bad, outages: outages}
	m.start = m.clock.mono
	m.next.start, m.next.tick = m.start+phase, m.start+phase*7%tickEvery
	return m
}

func (m *member) since() time.Duration { return m.clock.mono - m.start }

func (m *member) api() bool {
	return !slices.ContainsFunc(m.outages, func(o outage) bool { return m.since() >= o.from && m.since() < o.to })
}

func (m *member) nature() nature {
	if m.runs == "s1" {
		return needsAPI
	}
	return m.bad
}

// day runs the machine until the day is over or nothing can change any more.
func (m *member) day() {
	for m.err == nil && m.since() < fleetDay {
		next := m.next.tick
		what := m.tick
		if m.proc == nil && m.runs == "" {
			if m.next.start <= next {
				next, what = m.next.start, m.boot
			}
		} else if m.proc != nil {
			if m.next.reconcile <= next {
				next, what = m.next.reconcile, m.reconcile
			}
			if m.onTrial && m.nature() != mute && m.until <= next {
				next, what = m.until, m.guard
			}
		}
		m.clock.pass(max(0, next-m.clock.mono))
		what()
		if m.done() {
			return
		}
	}
}

// done reports whether the wanted version runs confirmed, or is rejected for good.
func (m *member) done() bool {
	if m.proc == nil || m.onTrial || m.settled == 0 || !m.api() {
		return false
	}
	for _, o := range m.outages {
		if o.from > m.since() {
			return false // more is to come
		}
	}
	return true
}

// boot starts what is at the target, as a supervisor does.
func (m *member) boot() {
	m.settled = 0
	h := m.helper()
	_, err := h.Pre(m.t.Context())
	m.check("pre", err)
	m.runs = m.at()
	switch m.nature() {
	case crash, noexec:
		m.left(Ending{Detail: "status 1", NotExecuted: m.nature() == noexec})
		return
	case hang:
		return
	}
	u := m.process()
	s, err := u.Begin(m.t.Context())
	m.check("begin", err)
	m.proc, m.onTrial, m.until = u, s.OnTrial, m.clock.mono+s.Deadline
	m.next.reconcile, m.goods = m.clock.mono+firstReconcile, 0
	if s.Restart || m.nature() == exits {
		m.left(Ending{Detail: "status 2"})
	}
}

func (m *member) left(e Ending) {
	m.proc, m.runs, m.onTrial = nil, "", false
	m.next.start = m.clock.mono + restartAfter
	m.check("post", m.helper().Post(m.t.Context(), e))
}

func (m *member) reconcile() {
	m.next.reconcile += reconcileEvery
	if !m.api() {
		m.goods = 0
		return // it does not even know what is wanted
	}
	if n := m.nature(); n == needsAPI || n == good {
		m.goods++
	}
	if m.goods >= goodRounds {
		m.check("confirm", m.proc.Confirm(m.t.Context()))
		m.onTrial = false
	}
	if m.since() < applyAt {
		return
	}
	res, err := m.proc.Apply(m.t.Context(), m.wanted())
	switch {
	case errors.Is(err, ErrRejected), errors.Is(err, ErrOnTrial):
		if r, rerr := m.helper().target.read(); rerr == nil && r.Phase == phaseStable && m.settled == 0 {
			if j := r.rejection(digests["s2"]); j != nil && j.Verdict != verdictPending {
				m.settled = m.since()
			}
		}
	default:
		m.check("apply", err)
		if err == nil && res.Outcome == Updated {
			m.trials++
		}
		if err == nil && res.Outcome == UpToDate && !res.OnTrial && m.settled == 0 {
			m.settled = m.since()
		}
	}
	if res.RestartNeeded {
		m.left(Ending{Orderly: true})
	}
}

func (m *member) guard() {
	if err := m.proc.Guard(m.t.Context()); !errors.Is(err, ErrExpired) {
		m.check("guard", errors.Join(err, errors.New("not expired")))
	}
	m.left(Ending{Detail: "status 3"})
}

func (m *member) tick() {
	m.next.tick += tickEvery
	h := m.helper()
	c, err := h.Tick(m.t.Context())
	m.check("tick", err)
	if c.Restart {
		m.left(Ending{Orderly: true})
		m.check("restarted", h.Restarted(m.t.Context()))
	}
}

func (m *member) check(what string, err error) {
	if err != nil && m.err == nil {
		m.err = fmt.Errorf("%s after %v: %w", what, m.since(), err)
	}
}

func (m *member) wanted() Release {
	sums := []byte(digests["s2"].Hex() + "  app\n")
	asset := func(name string, data []byte) Asset {
		return Asset{Name: name, URL: "https://example.com/s2/" + name, Size: int64(len(data)), Open: func(context.Context, Position) (Body, error) {
			if name == "app" {
				m.downloads++
			}
			return Body{ReadCloser: io.NopCloser(bytes.NewReader(data)), Size: int64(len(data))}, nil
		}}
	}
	return Release{Version: "s2", Assets: []Asset{asset("app", contents["s2"])}, Lookup: func(string) (Asset, error) {
		return asset("app.sha256", sums), nil
	}}
}

// tally is what became of a fleet.
type tally struct {
	machines, dead, wanted, rejected, wrongly int
	downloads, trials                         []int
	settled                                   []time.Duration
	worst                                     string
}

func (c *tally) add(m *member, goodVersion bool) {
	c.machines++
	c.downloads, c.trials, c.settled = append(c.downloads, m.downloads), append(c.trials, m.trials), append(c.settled, m.settled)
	r, err := m.helper().target.read()
	running := err == nil && r.Phase == phaseStable && r.Current != nil && m.proc != nil && m.runs == m.at() &&
		r.Current.SHA256 == digests[m.runs] && r.Current.Confirmed && (m.nature() == needsAPI || m.nature() == good)
	if !running || m.err != nil || m.settled == 0 {
		c.dead++
		c.worst = fmt.Sprintf("%v: %v runs %q, record %+v", m.outages, m.err, m.runs, r.Phase)
	}
	if m.runs == "s2" {
		c.wanted++
	}
	if j := r.rejection(digests["s2"]); j.bars() {
		c.rejected++
		if goodVersion {
			c.wrongly++
			c.worst = fmt.Sprintf("outages %v: %s after %d trials: %s", m.outages, j.Verdict, m.trials, j.Reason)
		}
	}
}

func (c *tally) String() string {
	sum, trials := 0, 0
	for i := range c.downloads {
		sum, trials = sum+c.downloads[i], trials+c.trials[i]
	}
	slices.Sort(c.settled)
	n := max(1, c.machines)
	return fmt.Sprintf("%6d | %4d | %7d | %8d | %7d | %5.2f, %2d | %5.2f, %2d | %8v, %8v", c.machines, c.dead, c.wanted, c.rejected, c.wrongly,
		float64(sum)/float64(n), slices.Max(c.downloads), float64(trials)/float64(n), slices.Max(c.trials),
		c.settled[len(c.settled)/2].Round(time.Second), c.settled[len(c.settled)-1].Round(time.Second))
}

// fleetOf runs n machines, as many at once as there are processors.
func fleetOf(t *testing.T, n int, member func(i int, dir string) (m *member, goodVersion bool)) *tally {
	t.Helper()
	dir := memory(t)
	var (
		mu  sync.Mutex
		all tally
		wg  sync.WaitGroup
	)
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				home := filepath.Join(dir, fmt.Sprint(i))
				if !assert.NoError(t, os.Mkdir(home, 0o755)) {
					continue
				}
				m, goodVersion := member(i, home)
				m.day()
				mu.Lock()
				all.add(m, goodVersion)
				mu.Unlock()
				_ = os.RemoveAll(home)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	require.Equal(t, n, all.machines)
	return &all
}

// spread returns the i-th of n moments of an interval, both ends included.
func spread(i, n int, from, to time.Duration) time.Duration {
	return from + time.Duration(int64(to-from)/int64(max(1, n-1))*int64(i%n))
}

// phaseOf gives each machine its own moment in its loop, and when it is told to
// update then.
func phaseOf(i int) (phase, applied time.Duration) {
	phase = time.Duration(i*7919%1700) * 100 * time.Millisecond
	return phase, phase + firstReconcile + applyAt
}

// A fleet is told to run a version. Its outages begin and end at times after the update.
type fleet struct {
	name   string
	share  int // of all the machines, in percent
	member func(i, n int) (nature, []outage)
	good   bool // and one outage at most: every machine must end on it
}

func everywhere(bad nature) func(i, n int) (nature, []outage) {
	return func(int, int) (nature, []outage) { return bad, nil }
}

// window is from before the update until after the second way back.
const before, window = -reconcileEvery, 45 * time.Minute

var fleets = []fleet{
	{"crashes everywhere", 3, everywhere(crash), false},
	{"can't be executed anywhere", 2, everywhere(noexec), false},
	{"ends after Begin everywhere", 2, everywhere(exits), false},
	{"hangs everywhere", 2, everywhere(hang), false},
	{"never healthy, everywhere", 3, everywhere(sick), false},
	{"never healthy, its Guard dead", 3, everywhere(mute), false},
	{"never healthy on 1 %", 15, func(i, _ int) (nature, []outage) {
		if i%100 == 7 {
			return sick, nil
		}
		return needsAPI, nil
	}, false},
	{"good, no outage", 5, everywhere(needsAPI), true},
	{"good, one outage", 30, func(i, n int) (nature, []outage) {
		starts := 5 + n/42
		at := spread(i, starts, before, window)
		return needsAPI, []outage{{at, at + spread(i/starts, n/starts, 30*time.Second, 50*time.Minute)}}
	}, true},
	{"good, one outage of hours", 5, func(i, n int) (nature, []outage) {
		at := spread(i, n, before, window)
		return needsAPI, []outage{{at, at + spread(i*31, n, time.Hour, 8*time.Hour)}}
	}, true},
	{"good, it ends at a decision", 20, func(i, _ int) (nature, []outage) {
		end := decisions[i%len(decisions)] + time.Duration(i/len(decisions)%41-20)*500*time.Millisecond
		return needsAPI, []outage{{min(end, time.Millisecond), end}}
	}, true},
	{"good, two outages in a row", 10, func(i, n int) (nature, []outage) {
		a := spread(i, n, before, 20*time.Minute)
		b := a + spread(i*7, n, time.Minute, 25*time.Minute)
		c := b + spread(i*13, n, 10*time.Second, 25*time.Minute)
		return needsAPI, []outage{{a, b}, {c, c + spread(i*29, n, time.Minute, 25*time.Minute)}}
	}, false},
}

// decisions are when a machine whose API is away since the update decides: the first
// work of the candidate, its deadline, the start and the first work of the program
// that came back, the end of that one's time, and all of it again.
var decisions = []time.Duration{
	restartAfter, restartAfter + firstReconcile, 4 * time.Minute, 10 * time.Minute,
	10*time.Minute + restartAfter, 10*time.Minute + 2*restartAfter, 10*time.Minute + 2*restartAfter + firstReconcile,
	13*time.Minute + 2*restartAfter, 16*time.Minute + 2*restartAfter,
	20*time.Minute + restartAfter, 20*time.Minute + 2*restartAfter, 22*time.Minute + 2*restartAfter, 30*time.Minute + 3*restartAfter,
}

// TestFleet tells machines to run a version that is broken everywhere, on some, or
// good while the API is away. None may end without a confirmed program that runs,
// and no outage may make a good version a rejected one.
func TestFleet(t *testing.T) {
	total := 360
	if os.Getenv("SELFUPDATE_SOAK") != "" {
		total = 10000
	}
	var table strings.Builder
	table.WriteString("\nthe new version                | machines | dead | on it | rejected | wrongly | downloads mean, max | trials mean, max | settled median, max\n")
	machines := 0
	for _, f := range fleets {
		n := total * f.share / 100
		all := fleetOf(t, n, func(i int, dir string) (*member, bool) {
			phase, applied := phaseOf(i)
			bad, outages := f.member(i, n)
			for o := range outages {
				outages[o].from += applied
				outages[o].to += applied
			}
			return newMember(t, dir, bad, phase, outages), f.good
		})
		machines += n
		fmt.Fprintf(&table, "%-30s | %v\n", f.name, all)
		assert.Zero(t, all.dead, "%s: %s", f.name, all.worst)
		assert.Zero(t, all.wrongly, "%s: %s", f.name, all.worst)
		if f.good {
			assert.Equal(t, n, all.wanted, "%s: on the wanted version", f.name)
		}
	}
	t.Logf("%d machines%s", machines, table.String())
}
