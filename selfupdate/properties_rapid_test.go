package selfupdate

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// run is a machine and the list of what happens to it.
type course struct {
	natures [castPrograms]nature
	helper  bool
	timer   bool
	steps   []step
}

// twins are one machine twice. The second one's wall clock is wrong, by up to ten
// years and another time each time: I11 says that this changes no decision.
type twins struct {
	t    tester
	a, b *world
}

func newTwins(t tester, dir string, c course) *twins {
	require.NoError(t, os.MkdirAll(dir, 0o755))
	w := &twins{t, newWorld(t, filepath.Join(dir, "a"), c.natures, c.helper, c.timer), newWorld(t, filepath.Join(dir, "b"), c.natures, c.helper, c.timer)}
	w.b.wall = -tenYears
	return w
}

const tenYears = 10 * 365 * 24 * 60 * 60 * 1e9

func (tw *twins) act(s step) {
	if s.do == "shift" {
		tw.b.wall = []time.Duration{-tenYears, tenYears, 0}[s.n%3]
	}
	for _, w := range []*world{tw.a, tw.b} {
		w.act(s)
		w.check()
	}
	if a, b := tw.a.normal(), tw.b.normal(); a != b {
		tw.a.fail("I11", "with another wall clock it is\n%s\nand not\n%s", b, a)
	}
}

func (tw *twins) settle() {
	tw.a.settle()
	tw.b.settle()
	if a, b := tw.a.normal(), tw.b.normal(); a != b {
		tw.a.fail("I11", "with another wall clock it settles as\n%s\nand not as\n%s", b, a)
	}
}

// checks sets how many machines rapid tries, unless the command line says it: in the
// short form always the same ones, in the long form others each time.
func checks(t *testing.T, short, soak int) {
	t.Helper()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	n, seed := short, 20260
	if os.Getenv("SELFUPDATE_SOAK") != "" {
		n, seed = soak, 0
	}
	for name, value := range map[string]int{"rapid.checks": n, "rapid.seed": seed} {
		if !given[name] {
			require.NoError(t, flag.Set(name, strconv.Itoa(value)))
		}
	}
}

// TestProperties lets anything happen to machines in any order, each of it stopped
// anywhere by kill -9 or a power cut.
func TestProperties(t *testing.T) {
	checks(t, 60, 3000)
	runs, actions, faults := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(fast(), "selfupdate-properties-")
		require.NoError(t, err)
		defer func() { _ = os.RemoveAll(dir) }()
		c := course{helper: rapid.IntRange(0, 3).Draw(t, "helper") > 0, timer: rapid.Bool().Draw(t, "timer")}
		for i := 1; i < castPrograms; i++ {
			c.natures[i] = nature(rapid.IntRange(0, int(natures)-1).Draw(t, "nature"))
		}
		c.natures[0] = nature(rapid.IntRange(0, 1).Draw(t, "nature"))
		tw := newTwins(t, dir, c)
		runs++
		t.Repeat(map[string]func(*rapid.T){"step": func(t *rapid.T) {
			s := draw(t, tw.a)
			c.steps = append(c.steps, s)
			defer func() {
				if t.Failed() {
					t.Log(c.String())
				}
			}()
			if actions++; s.fault != "" {
				faults++
			}
			tw.act(s)
		}})
		defer func() {
			if t.Failed() {
				t.Log(c.String())
			}
		}()
		tw.settle()
	})
	t.Logf("%d machines, %d actions, %d of them interrupted", runs, actions, faults)
}

func draw(t *rapid.T, w *world) step {
	s := step{do: rapid.SampledFrom(w.possible()).Draw(t, "do")}
	s.n = rapid.IntRange(0, 15).Draw(t, "n")
	switch s.do {
	case "api", "disk", "shift", "pass", "foreign", "mv rollback", "delete":
		return s
	case "spoil slot", "spoil record", "reboot":
		s.seed = rapid.Uint64Range(0, 1<<12).Draw(t, "seed")
		return s
	}
	switch rapid.IntRange(0, 5).Draw(t, "fault") {
	case 4:
		s.fault = "kill"
	case 5:
		s.fault = "power"
		s.seed = rapid.Uint64Range(0, 1<<12).Draw(t, "seed")
	default:
		return s
	}
	s.at = rapid.IntRange(1, 45).Draw(t, "at")
	return s
}

func (c course) String() string {
	var b strings.Builder
	b.WriteString("natures: ")
	for _, n := range c.natures {
		b.WriteString(n.String() + ", ")
	}
	if c.helper {
		b.WriteString("helper, ")
	}
	if c.timer {
		b.WriteString("timer")
	}
	for _, s := range c.steps {
		b.WriteString("\n\t" + s.String())
	}
	return b.String()
}

func (n nature) String() string {
	return []string{"good", "needsAPI", "noexec", "crash", "hang", "exits", "mute", "sick"}[n]
}

// fast returns where fsync costs nothing, "" when there is no such place.
func fast() string {
	const dir = "/dev/shm"
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}
