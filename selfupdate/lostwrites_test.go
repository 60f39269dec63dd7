package selfupdate

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/checksum"
)

// lossy is a file system that keeps what fsync promises and not a bit more: after
// a power cut, the data of a file that was not flushed is garbage, and of the
// operations on a directory since it was last flushed any subset survives. That
// is weaker than every journaling file system, on which a later fsync brings
// earlier operations with it and so hides a missing one. The operations are done
// for real too: it is the real code that runs.
type lossy struct {
	root    string
	now     map[string]*node // what a running process sees
	durable map[string]*node
	pending []change // since their directory was last flushed, in order
}

// node is an inode: a directory, or a file with what was flushed of it.
type node struct {
	dir     bool
	mode    fs.FileMode
	flushed []byte // nil: never
}

type change struct {
	path string
	node *node  // nil: the name is gone
	from string // and so is this one: a rename within a directory is one change
}

// apply makes the change in names.
func (c change) apply(names map[string]*node) {
	names[c.path] = c.node
	if c.from != "" {
		names[c.from] = nil
	}
}

// tester is a *testing.T or a *rapid.T.
type tester interface {
	require.TestingT
	Helper()
}

func newLossy(t tester, root string) *lossy {
	t.Helper()
	l := &lossy{root: root, now: map[string]*node{}}
	inodes := map[uint64]*node{}
	require.NoError(t, filepath.Walk(root, func(p string, fi os.FileInfo, err error) error {
		if err != nil || p == root {
			return err
		}
		n := inodes[inode(fi)]
		if n == nil {
			n = &node{dir: fi.IsDir(), mode: fi.Mode().Perm()}
			if !n.dir {
				if n.flushed, err = os.ReadFile(p); err != nil {
					return err
				}
			}
			inodes[inode(fi)] = n
		}
		l.now[p] = n
		return nil
	}))
	l.durable = maps.Clone(l.now)
	return l
}

func (l *lossy) set(path string, n *node) {
	if n == nil {
		delete(l.now, path)
	} else {
		l.now[path] = n
	}
	l.pending = append(l.pending, change{path: path, node: n})
}

func (l *lossy) syncDir(dir string) {
	l.pending = slices.DeleteFunc(l.pending, func(c change) bool {
		if filepath.Dir(c.path) != dir {
			return false
		}
		c.apply(l.durable)
		return true
	})
}

// ops returns sys with every change of it followed.
func (l *lossy) ops(sys ops) ops {
	o := sys
	o.create = func(p string) (file, error) {
		f, err := sys.create(p)
		if err != nil {
			return nil, err
		}
		n := &node{mode: 0o600}
		l.set(p, n)
		return &lossyFile{f, n}, nil
	}
	move := func(f func(string, string) error) func(string, string) error {
		return func(from, to string) error {
			err := f(from, to)
			switch {
			case err != nil || l.now[from] == l.now[to]:
			case filepath.Dir(from) == filepath.Dir(to):
				n := l.now[from]
				delete(l.now, from)
				l.now[to] = n
				l.pending = append(l.pending, change{to, n, from})
			default:
				l.set(to, l.now[from])
				l.set(from, nil)
			}
			return err
		}
	}
	o.rename, o.commit = move(sys.rename), move(sys.commit)
	o.link = func(from, to string) error {
		err := sys.link(from, to)
		if err == nil {
			l.set(to, l.now[from])
		}
		return err
	}
	o.remove = func(p string) error {
		err := sys.remove(p)
		if err == nil && l.now[p] != nil {
			l.set(p, nil)
		}
		return err
	}
	o.mkdir = func(p string) error {
		err := sys.mkdir(p)
		if err == nil && l.now[p] == nil {
			l.set(p, &node{dir: true, mode: 0o700})
		}
		return err
	}
	o.syncDir = func(p string) error {
		err := sys.syncDir(p)
		if err == nil {
			l.syncDir(p)
		}
		return err
	}
	return o
}

type lossyFile struct {
	file
	node *node
}

func (f *lossyFile) Sync() error {
	err := f.file.Sync()
	if err != nil {
		return err
	}
	fi, err := f.file.Stat()
	if err != nil {
		return err
	}
	f.node.mode = fi.Mode().Perm()
	f.node.flushed, err = os.ReadFile(f.Name())
	return err
}

// survivors returns subsets of the pending changes: none, all, each alone, all
// but each, and some at random.
func (l *lossy) survivors(seed int) [][]bool {
	n := len(l.pending)
	all := [][]bool{make([]bool, n), slices.Repeat([]bool{true}, n)}
	for i := range n {
		one, rest := make([]bool, n), slices.Repeat([]bool{true}, n)
		one[i], rest[i] = true, false
		all = append(all, one, rest)
	}
	rnd := rand.New(rand.NewPCG(uint64(seed), 1))
	for range min(4, n) {
		some := make([]bool, n)
		for i := range some {
			some[i] = rnd.IntN(2) == 0
		}
		all = append(all, some)
	}
	return all
}

// after makes dir what is found after a power cut that the changes marked true survive.
func (l *lossy) after(t tester, dir string, survives []bool) {
	t.Helper()
	left := maps.Clone(l.durable)
	for i, c := range l.pending {
		if survives[i] {
			c.apply(left)
		}
	}
	made := map[*node]string{}
	for _, p := range slices.Sorted(maps.Keys(left)) {
		n := left[p]
		to := filepath.Join(dir, strings.TrimPrefix(p, l.root))
		if _, err := os.Stat(filepath.Dir(to)); n == nil || err != nil {
			continue // the directory itself did not survive
		}
		switch first := made[n]; {
		case n.dir:
			require.NoError(t, os.Mkdir(to, n.mode))
		case first != "":
			require.NoError(t, os.Link(first, to))
		default:
			data := n.flushed
			if data == nil {
				data = make([]byte, 100)
			}
			require.NoError(t, os.WriteFile(to, data, 0o600))
			require.NoError(t, os.Chmod(to, n.mode))
			made[n] = to
		}
	}
}

// TestLostWrites cuts the power before each operation of an update and of a way
// back, lets subsets of what was not flushed survive, and looks at each outcome.
func TestLostWrites(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			points, outcomes := 0, 0
			for at := 1; ; at++ {
				path := installedIn(t, memory(t), "s1")
				s.setup(t, path)
				l := newLossy(t, filepath.Dir(path))
				reached := false
				sys := hooked(l.ops(system()), func(op, p string) error {
					if at--; at >= 0 {
						return nil
					}
					reached = true
					return errors.New("the power is off")
				})
				at0 := at
				u, err := newUpdater(Config{Target: path, Trust: UnsignedChecksum("test")}, sys)
				require.NoError(t, err)
				err = s.do(u, t.Context(), releaseOf(t, "s2", "s2").Release)
				at = at0
				if !reached {
					require.NoError(t, err)
				}
				for i, survives := range l.survivors(at) {
					dir := memory(t)
					l.after(t, dir, survives)
					name := fmt.Sprintf("power cut at operation %d, of %d changes %v survive", at, len(l.pending), survives)
					survived(t, filepath.Join(dir, "app"), s.name, reached, name)
					if i < 2 {
						recovers(t, filepath.Join(dir, "app"), name)
					}
					_ = os.RemoveAll(dir)
					outcomes++
				}
				_ = os.RemoveAll(filepath.Dir(path))
				if !reached {
					break
				}
				points++
			}
			t.Logf("%d power cuts with %d outcomes, 0 broken", points, outcomes)
		})
	}
}

// TestLostWritesAfterAKill kills an update right after its rename, which nothing
// has flushed yet, and cuts the power during the run that finds it.
func TestLostWritesAfterAKill(t *testing.T) {
	outcomes := 0
	for at := 1; ; at++ {
		path := installedIn(t, memory(t), "s1")
		l := newLossy(t, filepath.Dir(path))
		update := func(hook func(op, p string) error) error {
			u, err := newUpdater(Config{Target: path, Trust: UnsignedChecksum("test")}, hooked(l.ops(system()), hook))
			require.NoError(t, err)
			return applyRelease(u, t.Context(), releaseOf(t, "s2", "s2").Release)
		}
		swapped := false
		require.Error(t, update(func(op, _ string) error {
			if swapped {
				return errors.New("killed")
			}
			swapped = op == "commit"
			return nil
		}))
		require.Equal(t, "s2", whole(t, path))
		n, reached := 0, false
		err := update(func(string, string) error {
			if n++; n >= at {
				reached = true
				return errors.New("the power is off")
			}
			return nil
		})
		for i, survives := range l.survivors(at) {
			dir := memory(t)
			l.after(t, dir, survives)
			name := fmt.Sprintf("killed, then a power cut at operation %d, of %d changes %v survive", at, len(l.pending), survives)
			survived(t, filepath.Join(dir, "app"), "", reached, name)
			if i < 2 {
				recovers(t, filepath.Join(dir, "app"), name)
			}
			_ = os.RemoveAll(dir)
			outcomes++
		}
		_ = os.RemoveAll(filepath.Dir(path))
		if !reached {
			require.NoError(t, err)
			t.Logf("%d power cuts with %d outcomes, 0 broken", at-1, outcomes)
			return
		}
	}
}

// survived checks what must hold after every power cut: a whole program; a record
// that can be read, names what is at the target and names only what is there and
// intact; after a way back, the rejection.
func survived(t *testing.T, path, scenario string, interrupted bool, name string) {
	t.Helper()
	is := whole(t, path)
	require.Contains(t, []string{"s1", "s2"}, is, name)
	if !interrupted {
		require.Equal(t, "s2", is, "%s, after it was done", name)
	}
	tg := newTarget(path)
	r, err := tg.read()
	require.NoError(t, err, name)
	if is == "s2" {
		require.NotEmpty(t, r.Phase, "%s: a new program without a record", name)
		named := r.Current != nil && r.Current.SHA256.Equal(digests[is]) ||
			r.Trial != nil && (r.Trial.Candidate.SHA256.Equal(digests[is]) || r.Trial.Fallback.Equal(digests[is]))
		require.True(t, named, "%s: the record does not name the new program: %+v", name, r)
	}
	for _, d := range r.slots() {
		if d.IsZero() || r.Trial == nil && d.Equal(digests[is]) { // the program that is there needs no slot
			continue
		}
		require.True(t, tg.intact(d), "%s: the record names a program that is not there, %v", name, d)
	}
	if r.Trial != nil && !r.Trial.Expired { // the way back needs no space from here on
		back, err := tg.hash(tg.rollback, checksum.SHA256)
		require.NoError(t, err, name)
		require.Equal(t, r.Trial.Fallback, back, name)
	}
	if scenario == "rollback" && r.Phase == phaseStable && is == "s2" {
		require.NotNil(t, r.rejection(digests["s1"]), "%s: back, but not rejected", name)
	}
}
