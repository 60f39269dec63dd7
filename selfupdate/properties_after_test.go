package selfupdate

import (
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a machine may look like before something is stopped, who stops it, and what
// somebody may do by hand before the next run settles it.
var (
	befores = map[string][]step{
		"new":              nil,
		"updated":          {{do: "install", n: 1}},
		"updated twice":    {{do: "install", n: 3}, {do: "install", n: 1}},
		"on trial":         {{do: "apply by hand", n: 1}},
		"on trial, begun":  {{do: "apply by hand", n: 1}, {do: "start"}},
		"starts used up":   failing,
		"came back":        append(slices.Clone(failing), step{do: "start"}),
		"came back, again": append(slices.Clone(failing), step{do: "start"}, step{do: "apply by hand", n: 1}),
		"replaced by hand": {{do: "install", n: 1}, {do: "foreign"}},
	}
	failing = []step{
		{do: "apply by hand", n: 2}, {do: "start"}, {do: "kill"}, {do: "start"}, {do: "kill"}, {do: "start"}, {do: "kill"},
	}
	interrupted = []step{
		{do: "apply by hand", n: 1}, {do: "apply by hand", n: 2}, {do: "install", n: 1}, {do: "rollback"}, {do: "rollback", n: 1},
		{do: "start"}, {do: "confirm"}, {do: "tick"}, {do: "kill"}, {do: "clear"},
	}
	stops = []step{{fault: "kill"}, {fault: "power"}, {fault: "power", seed: 1}, {fault: "power", seed: 2}}
	after = []step{
		{do: "delete"}, {do: "mv rollback"}, {do: "foreign"}, {do: "foreign", n: 1}, {do: "spoil record", seed: 200},
		{do: "spoil slot"}, {do: "spoil slot", n: 1}, {do: "start"}, {do: "rollback"}, {do: "apply by hand", n: 3},
		{do: "rollback", n: 1}, {do: "install", n: 3}, {do: "reboot"},
	}
	disks = [][2]bool{{false, false}, {true, true}, {true, false}, {false, true}} // full while it is stopped, full afterwards
)

// TestPropertiesAfter goes through what TestProperties meets by luck only: every
// operation stopped at every point, on a disk that is full before or after, and then
// somebody's hands, once or twice. One in 1000 in the short form, one in 20 in the long
// one (others each time), and a twentieth of that with two.
func TestPropertiesAfter(t *testing.T) {
	salt := int64(0)
	if long() {
		salt = time.Now().UnixNano()
	}
	for _, name := range slices.Sorted(maps.Keys(befores)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			machines := 0
			for _, do := range interrupted {
				for _, helper := range []bool{true, false} {
					for _, disk := range disks {
						machines += afterEach(t, salt, befores[name], do, helper, disk)
					}
				}
			}
			require.NotZero(t, machines)
			t.Logf("%d machines", machines)
		})
	}
}

func afterEach(t *testing.T, salt int64, before []step, do step, helper bool, disk [2]bool) (machines int) {
	t.Helper()
	points := 0
	runAfter(t, before, helper, disk, func(w *world) {
		if !slices.Contains(w.possible(), do.do) {
			return
		}
		const many = 1 << 20
		w.armed = many
		w.perform(do)
		points = many - w.armed
	})
	for at := 1; at <= points; at++ {
		for _, stop := range stops {
			for _, then := range hands() {
				s := do
				s.fault, s.seed, s.at = stop.fault, stop.seed, at
				every := uint64(1000)
				if long() {
					every = 20
				}
				if len(then) > 1 {
					every *= 20
				}
				if !oneIn(every, salt, before, s, helper, disk, then) {
					continue
				}
				machines++
				t.Run(fmt.Sprintf("%s at %d, helper %v, disk %v, %s", s, at, helper, disk, then), func(t *testing.T) {
					runAfter(t, before, helper, disk, func(w *world) {
						w.act(s)
						w.check()
						if w.full != disk[1] {
							w.act(step{do: "disk"})
						}
						for _, h := range then {
							if slices.Contains(w.possible(), h.do) {
								w.act(h)
								w.check()
							}
						}
						w.settle()
					})
				})
			}
		}
	}
	return machines
}

// hands are the acts by hand: none, one, or two.
func hands() [][]step {
	all := [][]step{nil}
	for _, one := range after {
		all = append(all, []step{one})
		for _, two := range after {
			all = append(all, []step{one, two})
		}
	}
	return all
}

// runAfter runs do on a machine on which everything before happened, if it can.
func runAfter(t *testing.T, before []step, helper bool, disk [2]bool, do func(*world)) {
	t.Helper()
	dir, err := os.MkdirTemp(fast(), "selfupdate-properties-")
	require.NoError(t, err)
	defer func() { _ = os.RemoveAll(dir) }()
	w := newWorld(t, dir+"/a", [castPrograms]nature{good, good, sick, good, good}, helper, true)
	for _, s := range before {
		w.act(s)
		w.check()
	}
	if disk[0] {
		w.act(step{do: "disk"})
	}
	do(w)
}

func oneIn(n uint64, of ...any) bool {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, of...)
	return h.Sum64()%n == 0
}
