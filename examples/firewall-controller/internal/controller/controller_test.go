package controller

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/examples/firewall-controller/internal/firewall"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// memory is a Store whose spec the test changes.
type memory struct {
	mu      sync.Mutex
	spec    firewall.Spec
	specErr error
	changes chan struct{}
	status  []firewall.Status
	events  []firewall.Event

	statusErr, emitErr error
	hangs              bool // Spec does, until it is given up
}

func (m *memory) Spec(ctx context.Context) (firewall.Spec, error) {
	if m.hangs {
		<-ctx.Done()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.spec, m.specErr
}

func (m *memory) set(spec firewall.Spec, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spec, m.specErr = spec, err
}

func (m *memory) Changes(context.Context) <-chan struct{} { return m.changes }

func (m *memory) SetStatus(_ context.Context, s firewall.Status) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.statusErr != nil {
		return m.statusErr
	}
	m.status = append(m.status, s)
	return nil
}

func (m *memory) Emit(_ context.Context, e firewall.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.emitErr != nil {
		return m.emitErr
	}
	m.events = append(m.events, e)
	return nil
}

func (m *memory) reasons() []firewall.Reason {
	m.mu.Lock()
	defer m.mu.Unlock()
	var rs []firewall.Reason
	for _, e := range m.events {
		rs = append(rs, e.Reason)
	}
	return rs
}

func (m *memory) last() firewall.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.status) == 0 {
		return firewall.Status{}
	}
	return m.status[len(m.status)-1]
}

// server is a source without a network. It serves programs by version and counts.
type server struct {
	mu       sync.Mutex
	programs map[string]string
	sums     map[string]string // by version; else the right one
	err      error             // of every request
	stalls   bool              // every request hangs until it is given up
	requests int
	opened   map[string]int // by name
}

func (s *server) release(version, url string) (selfupdate.Release, error) {
	if url == "" || strings.HasPrefix(url, "bad") {
		return selfupdate.Release{}, errors.New("not a URL")
	}
	asset := func(name, content string) selfupdate.Asset {
		return selfupdate.Asset{Name: name, URL: url, Size: -1, Open: func(ctx context.Context, _ selfupdate.Position) (selfupdate.Body, error) {
			return s.open(ctx, name, content)
		}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	program := s.programs[version]
	sum := s.sums[version]
	if sum == "" {
		sum = fmt.Sprintf("%x  bin/firewall-controller\n", sha256.Sum256([]byte(program)))
	}
	return selfupdate.Release{
		Version: version,
		Assets:  []selfupdate.Asset{asset("firewall-controller", program), asset("firewall-controller.sha256", sum)},
	}, nil
}

func (s *server) open(ctx context.Context, name, content string) (selfupdate.Body, error) {
	s.mu.Lock()
	s.requests++
	s.opened[name]++
	err, stalls := s.err, s.stalls
	s.mu.Unlock()
	if stalls {
		<-ctx.Done()
		return selfupdate.Body{}, ctx.Err()
	}
	return selfupdate.Body{ReadCloser: io.NopCloser(strings.NewReader(content)), Size: int64(len(content))}, err
}

// scene is a controller v1 on a program file with that content.
type scene struct {
	*Controller
	store  *memory
	server *server
	target string
	rules  string
	log    *bytes.Buffer
}

func newScene(t *testing.T) *scene {
	t.Helper()
	dir := t.TempDir()
	s := &scene{
		store:  &memory{changes: make(chan struct{}, 1)},
		server: &server{programs: map[string]string{"v1": "one", "v2": "two", "v3": "three"}, sums: map[string]string{}, opened: map[string]int{}},
		target: filepath.Join(dir, "bin", "firewall-controller"),
		rules:  filepath.Join(dir, "rules"),
		log:    &bytes.Buffer{},
	}
	require.NoError(t, os.Mkdir(filepath.Dir(s.target), 0o755))
	require.NoError(t, os.WriteFile(s.target, []byte("one"), 0o755))
	s.Controller = New(Config{
		Store:   s.store,
		Version: "v1",
		Updater: func() (*selfupdate.Updater, error) {
			return selfupdate.New(selfupdate.Config{
				Target: s.target, Current: "v1", Asset: "firewall-controller", AllowAnyFormat: true,
				Trust: selfupdate.UnsignedChecksum("a test"),
			})
		},
		Release:  s.server.release,
		Interval: time.Hour,
		Patience: 10 * time.Second,
		Log:      slog.New(slog.NewTextHandler(s.log, nil)),
	})
	return s
}

func (s *scene) want(version string, rules int) firewall.Spec {
	spec := firewall.Spec{ControllerVersion: version, ControllerURL: "https://images.example/" + version + "/firewall-controller", IPv4RuleFile: s.rules}
	for i := range rules {
		spec.EgressRules = append(spec.EgressRules, firewall.EgressRule{NetworkID: fmt.Sprintf("net%d", i), IPs: []string{"192.0.2.1"}})
	}
	return spec
}

func (s *scene) installed(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(s.target)
	require.NoError(t, err)
	return string(b)
}

func TestReconcileFailingUpdateStopsNothing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		breaks func(t *testing.T, s *scene)
		want   firewall.Reason
		leaves bool
	}{
		{"network", func(_ *testing.T, s *scene) { s.server.err = selfupdate.ErrNetwork }, firewall.UpdateFailedTemporary, false},
		{"no checksum file", func(_ *testing.T, s *scene) { s.server.err = selfupdate.ErrNotFound }, firewall.UpdateRefused, false},
		{"other bytes", func(_ *testing.T, s *scene) {
			s.server.sums["v2"] = strings.Repeat("a", 64) + "  bin/firewall-controller\n"
		}, firewall.UpdateRefused, false},
		{"web page as checksum", func(_ *testing.T, s *scene) { s.server.sums["v2"] = "<html>404</html>" }, firewall.UpdateRefused, false},
		{"world-writable directory", func(t *testing.T, s *scene) {
			require.NoError(t, os.Chmod(filepath.Dir(s.target), 0o777))
		}, firewall.UpdateFailedLocal, false},
		{"no updater", func(_ *testing.T, s *scene) {
			s.cfg.Updater = func() (*selfupdate.Updater, error) { return nil, selfupdate.ErrNoTarget }
		}, firewall.UpdateFailedLocal, false},
		{"unusable URL", func(_ *testing.T, s *scene) { s.store.spec.ControllerURL = "bad" }, firewall.SpecInvalid, false},
		{"no URL", func(_ *testing.T, s *scene) { s.store.spec.ControllerURL = "" }, firewall.SpecInvalid, false},
		{"nothing breaks", func(*testing.T, *scene) {}, firewall.Updated, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(t)
			s.store.set(s.want("v2", 2), nil)
			tt.breaks(t, s)
			assert.Equal(t, tt.leaves, s.reconcile(t.Context()))
			assert.Equal(t, []firewall.Reason{tt.want}, s.store.reasons())
			assert.Equal(t, "v2", s.store.last().NextVersion)
			assert.NotEmpty(t, s.store.last().Message)
			if tt.leaves {
				assert.Equal(t, "two", s.installed(t))
				return
			}
			assert.Equal(t, "one", s.installed(t))
			assert.Equal(t, 2, s.store.last().RulesInForce)
			assert.FileExists(t, s.rules)
			assert.False(t, s.reconcile(t.Context()))
			assert.Equal(t, []firewall.Reason{tt.want}, s.store.reasons(), "an event that still holds is not repeated")
		})
	}
}

func TestReconcileUpToDate(t *testing.T) {
	s := newScene(t)
	s.store.set(s.want("v1", 1), nil)
	require.False(t, s.reconcile(t.Context()))
	adopted := s.server.requests
	assert.Equal(t, 1, adopted, "the checksum file, once, to know what is installed")
	for range 3 {
		require.False(t, s.reconcile(t.Context()))
	}
	assert.Equal(t, adopted, s.server.requests)
	assert.Empty(t, s.store.events)
	assert.Empty(t, s.store.last().NextVersion)
	assert.Equal(t, 4, s.store.last().Reconciles)
}

// A version that calls itself otherwise is not installed again and again.
func TestReconcileOtherVersionString(t *testing.T) {
	s := newScene(t)
	s.server.programs["latest"] = "one"
	s.store.set(s.want("latest", 0), nil)
	for range 3 {
		require.False(t, s.reconcile(t.Context()))
	}
	assert.Empty(t, s.store.events)
	assert.Empty(t, s.store.last().NextVersion)
	assert.Equal(t, "v1", s.store.last().ActualVersion)
}

func TestReconcileRetries(t *testing.T) {
	s := newScene(t)
	s.store.set(s.want("v2", 0), nil)
	s.server.err = selfupdate.ErrNetwork
	require.False(t, s.reconcile(t.Context()))
	s.server.err = nil
	require.True(t, s.reconcile(t.Context()))
	assert.Equal(t, []firewall.Reason{firewall.UpdateFailedTemporary, firewall.Updated}, s.store.reasons())
}

func TestReconcileRejected(t *testing.T) {
	s := newScene(t)
	s.store.set(s.want("v2", 1), nil)
	require.True(t, s.reconcile(t.Context()))
	u, err := s.ready()
	require.NoError(t, err)
	_, err = u.Rollback(t.Context(), selfupdate.RollbackOptions{Reason: "drops packets"})
	require.NoError(t, err)

	after := New(s.cfg) // the process that the service manager starts
	after.hello()
	for range 2 {
		require.False(t, after.reconcile(t.Context()))
	}
	assert.Equal(t, "one", s.installed(t))
	assert.Equal(t, []firewall.Reason{firewall.Updated, firewall.RolledBack, firewall.UpdateRejected}, s.store.reasons())
	st := s.store.last()
	assert.Equal(t, "v2", st.NextVersion)
	assert.Contains(t, st.Message, "drops packets")
	assert.Equal(t, 1, st.RulesInForce)
	require.Len(t, st.Rejected, 1)
	assert.Contains(t, st.Rejected[0].Clear, "selfupdate clear --target "+s.target+" sha256:")

	_, err = u.Clear(t.Context(), selfupdate.ClearOptions{All: true})
	require.NoError(t, err)
	assert.True(t, after.reconcile(t.Context()))
	assert.Equal(t, "two", s.installed(t))
}

func TestReconcileMalformedSpec(t *testing.T) {
	s := newScene(t)
	s.store.set(firewall.Spec{}, fmt.Errorf("%w: line 3", firewall.ErrInvalid))
	require.False(t, s.reconcile(t.Context()), "no spec so far: nothing to do, no reason to stop")
	s.store.set(s.want("v1", 2), nil)
	require.False(t, s.reconcile(t.Context()))
	s.store.set(firewall.Spec{}, fmt.Errorf("%w: line 3", firewall.ErrInvalid))
	for range 2 {
		require.False(t, s.reconcile(t.Context()))
	}
	assert.Equal(t, 2, s.store.last().RulesInForce, "the old one holds")
	assert.Contains(t, s.store.last().Message, "line 3")
	assert.Equal(t, []firewall.Reason{firewall.SpecInvalid, firewall.SpecInvalid}, s.store.reasons(), "one for each time that it began")
}

func TestReconcileNoVersionAsked(t *testing.T) {
	s := newScene(t)
	s.store.set(firewall.Spec{}, nil)
	require.False(t, s.reconcile(t.Context()))
	assert.Zero(t, s.server.requests)
	assert.Empty(t, s.store.events)
}

func TestReconcileWorkFails(t *testing.T) {
	s := newScene(t)
	s.store.set(s.want("v1", 1), nil)
	require.False(t, s.reconcile(t.Context()))
	spec := s.want("v1", 2)
	spec.EgressRules[1].IPs = []string{"not an address"}
	s.store.set(spec, nil)
	require.False(t, s.reconcile(t.Context()))
	assert.Equal(t, []firewall.Reason{firewall.WorkFailed}, s.store.reasons())
	assert.Equal(t, 1, s.store.last().RulesInForce)
	spec.ControllerVersion, spec.ControllerURL = "v2", "https://images.example/v2/firewall-controller"
	s.store.set(spec, nil)
	assert.True(t, s.reconcile(t.Context()), "work that fails does not stop the update that may repair it")
}

// A stalled server holds up the rest of the work for as long as the patience lasts,
// once, and a changed spec gives it up.
func TestRunStalledServer(t *testing.T) {
	s := newScene(t)
	s.cfg.Patience = 20 * time.Millisecond
	s.server.stalls = true
	s.store.set(s.want("v2", 1), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	left := make(chan bool)
	go func() { left <- s.Run(ctx) }()

	require.Eventually(t, func() bool { return s.store.last().RulesInForce == 1 }, 10*time.Second, time.Millisecond)
	assert.Equal(t, "the update to v2 is under way", s.store.last().Message)
	assert.Equal(t, "v2", s.store.last().NextVersion)
	s.store.set(s.want("v2", 3), nil)
	s.store.changes <- struct{}{}
	require.Eventually(t, func() bool { return s.store.last().RulesInForce == 3 }, 10*time.Second, time.Millisecond)

	s.server.mu.Lock()
	s.server.stalls = false
	s.server.mu.Unlock()
	s.store.set(s.want("v3", 3), nil)
	s.store.changes <- struct{}{}
	assert.True(t, <-left)
	assert.Equal(t, "three", s.installed(t))
	entries, err := os.ReadDir(filepath.Join(filepath.Dir(s.target), ".firewall-controller.d", "slots"))
	require.NoError(t, err)
	assert.Len(t, entries, 2, "one and three, and nothing of the update that was given up")
}

func TestRunStops(t *testing.T) {
	s := newScene(t)
	s.cfg.Patience = time.Millisecond
	s.server.stalls = true
	s.store.set(s.want("v2", 1), nil)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan bool)
	go func() { left <- s.Run(ctx) }()
	require.Eventually(t, func() bool { return s.store.last().Reconciles > 0 }, 10*time.Second, time.Millisecond)
	cancel()
	assert.False(t, <-left)
	assert.Empty(t, s.store.events, "giving up because of a stop is no failure")
}
