// Package systemd_test runs the units of this directory, as they stand, under a real
// systemd.
package systemd_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

const (
	service    = "firewall-controller.service"
	dropIn     = "firewall-controller.service.d/10-selfupdate.conf"
	tick       = "firewall-controller-selfupdate.service"
	timer      = "firewall-controller-selfupdate.timer"
	deadline   = 10 * time.Second // of a trial here
	longer     = 5 * time.Minute  // of one that systemd itself has to end
	settleTime = 4 * time.Minute  // for one candidate; nothing takes half of it
	atOnce     = 12               // machines
)

// TestUnitsVerify wants systemd to find nothing to say about the units.
func TestUnitsVerify(t *testing.T) {
	verify := func(t *testing.T, spoil string) string {
		dir := t.TempDir()
		for _, name := range []string{"selfupdate-guard", "firewall-controller"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755))
		}
		for _, name := range []string{service, dropIn, tick, timer} {
			text := strings.ReplaceAll(unitText(t, name), "/usr/local/bin", dir)
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, spoil, "Nonsense=")), 0o644))
		}
		out, _ := exec.Command("systemd-analyze", "verify", "--man=no", filepath.Join(dir, service), filepath.Join(dir, tick), filepath.Join(dir, timer)).CombinedOutput()
		return string(out)
	}
	assert.Empty(t, verify(t, "\x00"))
	for _, key := range []string{"WatchdogSec=", "StartLimitIntervalSec=", "OnUnitActiveSec=", "SyslogLevel="} {
		assert.Contains(t, verify(t, key), "Nonsense", "the control: %s", key)
	}
}

// kind is how a machine is set up.
type kind string

const (
	full     kind = "unit"      // the whole unit and the timer
	over     kind = "drop-in"   // over an old plain unit, and the timer
	watchdog kind = "watchdog"  // the drop-in, and tick --every for a timer
	wrapper  kind = "wrapper"   // as unit, through a shell that hides exit codes
	tight    kind = "full disk" // as unit; the disk is full as soon as the first candidate is applied
	alone    kind = "no helper" // an old plain unit, and nothing else
)

// outcome is where a candidate has to end.
type outcome string

const (
	confirmed outcome = "confirmed"
	guilty    outcome = "guilty"
	stays     outcome = "stays" // until somebody rolls back
)

type candidate struct {
	behaves string
	want    outcome
	class   string // of the rejection
}

// story is what happens to one machine: candidates, one after the other.
type story struct {
	kind       kind
	deadline   time.Duration // of a trial
	candidates []candidate
}

func stories() []story {
	good := candidate{"good", confirmed, ""}
	twiceWithin := func(d time.Duration, k kind, behaves, class string) story {
		bad := candidate{behaves, guilty, class}
		return story{k, d, []candidate{bad, bad, good}}
	}
	twice := func(k kind, behaves, class string) story { return twiceWithin(deadline, k, behaves, class) }
	return []story{ // the longest first
		twiceWithin(longer, full, "hang", "hang"),
		twiceWithin(longer, wrapper, "hang", "hang"),
		twiceWithin(longer, full, "mute", "hang"),
		twice(full, "deaf", "unhealthy"),
		twice(full, "unhealthy", "unhealthy"),
		twice(over, "hang", "hang"),
		twice(over, "mute", "unhealthy"),
		twice(watchdog, "hang", "hang"),
		twice(watchdog, "deaf", "unhealthy"),
		{wrapper, longer, []candidate{good, {"noexec", guilty, "crash"}, {"crash", guilty, "crash"}, {"exit", guilty, "unhealthy"}, good}},
		{alone, deadline, []candidate{good, {"unhealthy", guilty, "unhealthy"}, {"exit1", guilty, "unhealthy"}, good}},
		{tight, deadline, []candidate{{"unhealthy", guilty, "unhealthy"}, good}},
		twice(full, "exit", "unhealthy"),
		twice(full, "noexec", "exec"),
		twice(full, "crash", "crash"),
		{over, deadline, []candidate{good, {"slow-good", confirmed, ""}, {"noexec", guilty, "exec"}, {"crash", guilty, "crash"}, good}},
		{tight, deadline, []candidate{{"crash", guilty, "crash"}, good}},
		{full, deadline, []candidate{good, {"slow-good", confirmed, ""}, good}},
		{tight, deadline, []candidate{good}},
		{alone, deadline, []candidate{{"crash", stays, ""}}},
	}
}

// TestUnits: whatever the next version does, the machine ends with a confirmed
// program that runs, and what failed is remembered.
func TestUnits(t *testing.T) {
	dir := t.TempDir()
	b := buildAll(t, dir)
	var machines []*machine
	for i, s := range stories() {
		m := &machine{story: s, builds: b, name: fmt.Sprintf("app%02d", i)}
		m.home = filepath.Join(dir, m.name)
		m.target = filepath.Join(m.home, "bin", m.name)
		require.NoError(t, os.MkdirAll(filepath.Dir(m.target), 0o755))
		if s.kind == tight {
			mountSmall(t, filepath.Dir(m.target))
		}
		machines = append(machines, m)
	}
	began := time.Now()
	c := boot(t, dir)
	t.Logf("systemd is up after %v", time.Since(began).Round(time.Millisecond))
	for _, m := range machines {
		m.c = c
		require.NoError(t, m.install(t))
	}
	_, err := c.run("systemctl", "daemon-reload")
	require.NoError(t, err)

	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, m := range machines {
		slots <- struct{}{}
		all.Go(func() { // no parallel subtests: those are as many as there are processors
			defer func() { <-slots }()
			m.err = m.live()
		})
	}
	all.Wait()
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "set-up\tcandidate\tends as\tits starts\tafter")
	for _, m := range machines {
		for _, r := range m.rows {
			_, _ = fmt.Fprintln(w, r)
		}
		if m.err != nil {
			journal, _ := c.run("journalctl", "-o", "short-monotonic", "--no-pager", "-n", "150", "-u", m.name+"*")
			t.Errorf("%s %s %v: %v\n%s\n%s\n%s", m.name, m.kind, m.candidates, m.err, tail(filepath.Join(m.home, "log")), m.said(), journal)
		}
	}
	require.NoError(t, w.Flush())
	t.Logf("trial of 3 starts and %v, (5 min where systemd has to end it), RestartSec=0.2, TimeoutStartSec=5, WatchdogSec=4, tick every 2 s; %d machines at once, %v in all\n%s", deadline, atOnce, time.Since(began).Round(time.Second), &table)
}

// machine is one story in the container.
type machine struct {
	story
	*builds
	c            *container
	name         string
	home, target string // on this side
	rows         []string
	err          error
}

// inside returns a path of this side as the container has it.
func (m *machine) inside(path string) string {
	return shared + strings.TrimPrefix(path, m.c.shared)
}

func (m *machine) unitName() string { return m.name + ".service" }

// text is a unit of this directory for this machine's program.
func (m *machine) text(t *testing.T, name string) string {
	s := unitText(t, name)
	s = strings.ReplaceAll(s, "/usr/local/bin/selfupdate-guard", m.inside(m.guard))
	s = strings.ReplaceAll(s, "/usr/local/bin/firewall-controller", m.inside(m.target))
	return strings.ReplaceAll(s, "firewall-controller", m.name)
}

// install puts the first program and the units where they belong.
func (m *machine) install(t *testing.T) error {
	files := map[string]string{
		"90-test.conf": "[Service]\nEnvironment=DAEMON_HOME=" + m.inside(m.home) + "\nLimitCORE=0\nRestartSec=200ms\nTimeoutStartSec=5\nTimeoutStopSec=2\n",
	}
	plain := "[Service]\nExecStart=" + m.inside(m.target) + "\nRestart=always\n"
	switch m.kind {
	case full, wrapper, tight:
		files[""] = m.text(t, service)
		files["90-test.conf"] += "WatchdogSec=4\n"
	case over, watchdog:
		files[""] = plain
		files["10-selfupdate.conf"] = m.text(t, dropIn)
	case alone:
		files[""] = plain + "[Unit]\nStartLimitIntervalSec=0\n"
	}
	switch m.kind {
	case wrapper:
		files["90-test.conf"] += "NotifyAccess=all\nExecStart=\nExecStart=/bin/bash -c '" + m.inside(m.target) + " || true; exit 1'\n"
	case tight:
		files["90-test.conf"] += "Environment=DAEMON_FILL=" + m.inside(filepath.Join(filepath.Dir(m.target), "fill")) + "\n"
	}
	for name, text := range files {
		unit := m.unitName()
		if name != "" {
			unit += ".d/" + name
		}
		if err := m.c.unit(unit, text); err != nil {
			return err
		}
	}
	switch m.kind {
	case watchdog:
		text := strings.Replace(m.text(t, tick), "Type=oneshot", "Type=simple\nRestart=always", 1)
		text = strings.Replace(text, m.unitName(), m.unitName()+" --every 2s", 1)
		if err := m.c.unit(m.name+"-selfupdate.service", text); err != nil {
			return err
		}
	case alone:
	default:
		err := errors.Join(
			m.c.unit(m.name+"-selfupdate.service", m.text(t, tick)),
			m.c.unit(m.name+"-selfupdate.timer", m.text(t, timer)),
			m.c.unit(m.name+"-selfupdate.timer.d/90-test.conf", "[Timer]\nOnBootSec=\nOnBootSec=1s\nOnUnitActiveSec=2s\nAccuracySec=100ms\n"),
		)
		if err != nil {
			return err
		}
	}
	return errors.Join(
		os.WriteFile(filepath.Join(m.home, "deadline"), []byte(m.deadline.String()), 0o644),
		os.WriteFile(m.target, m.program("v0", "good"), 0o755),
	)
}

// live runs the story.
func (m *machine) live() error {
	units := []string{m.unitName()}
	switch m.kind {
	case alone:
	case watchdog:
		units = append(units, m.name+"-selfupdate.service")
	default:
		units = append(units, m.name+"-selfupdate.timer")
	}
	if _, err := m.c.run(append([]string{"systemctl", "start"}, units...)...); err != nil {
		return err
	}
	if m.kind == tight {
		if err := os.WriteFile(filepath.Join(m.home, "fill"), []byte("once\n"), 0o644); err != nil {
			return err
		}
	}
	for i, c := range m.candidates {
		if err := m.candidate(fmt.Sprintf("v%d", i+1), c); err != nil {
			return fmt.Errorf("%d, %s: %w", i+1, c.behaves, err)
		}
	}
	return nil
}

// candidate tells the machine to be another version, and waits for what comes of that.
func (m *machine) candidate(version string, c candidate) error {
	before, err := selfupdate.ReadStatus(m.target, nil)
	if err != nil {
		return err
	}
	path := filepath.Join(m.home, version)
	b := m.program(version, c.behaves)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return err
	}
	began := time.Now()
	if err := m.want(path); err != nil {
		return err
	}
	old, sum := before.Current.SHA256, digest(b)
	if m.kind == tight && version == "v1" {
		if err := m.onFullDisk(c); err != nil {
			return err
		}
	}
	if c.want == stays {
		return m.stays(version, old)
	}
	err = m.await("the end of the trial", func(st selfupdate.Status) bool {
		if c.want == confirmed {
			return st.Phase == "stable" && st.Current.SHA256.Equal(sum) && st.Current.Confirmed
		}
		i := slices.IndexFunc(st.Rejected, func(j selfupdate.Rejection) bool { return j.SHA256.Equal(sum) })
		return st.Phase == "stable" && st.Current.SHA256.Equal(old) && i >= 0 && final(st.Rejected[i])
	})
	if err != nil {
		return err
	}
	took := time.Since(began)
	st, err := selfupdate.ReadStatus(m.target, nil)
	if err != nil {
		return err
	}
	ends := string(c.want)
	if c.want == guilty {
		j := st.Rejected[len(st.Rejected)-1]
		if ends = j.Verdict + ", " + j.Class; j.Class != c.class {
			return fmt.Errorf("class %s (%s), not %s", j.Class, j.Reason, c.class)
		}
	}
	if err := m.runs(); err != nil {
		return err
	}
	m.row(version, c, ends, took)
	return m.protected()
}

// final reports whether a rejection bars its program for good. On a machine that is
// very slow a failure doesn't count, and it takes all the retries.
func final(j selfupdate.Rejection) bool {
	return j.Verdict == string(guilty) || j.Verdict == "inconclusive" && j.Retries == 0
}

func (m *machine) want(path string) error {
	tmp := filepath.Join(m.home, "want.tmp")
	if err := os.WriteFile(tmp, []byte(m.inside(path)+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(m.home, "want"))
}

// onFullDisk waits until the disk is full and the program before runs on it, then
// makes room.
func (m *machine) onFullDisk(c candidate) error {
	err := m.await("the program before on a full disk", func(selfupdate.Status) bool {
		_, after, filled := strings.Cut(m.said(), "v0 filled: ")
		// It works, and there is no room to record that.
		return filled && strings.Contains(after, "v0 confirm: ") && strings.Contains(after, "no space left")
	})
	if err != nil {
		return err
	}
	m.row("v1", c, "left: the disk is full", 0)
	return errors.Join(os.Remove(filepath.Join(m.home, "fill")), os.Remove(filepath.Join(filepath.Dir(m.target), "fill")))
}

// stays: without a helper nobody counts the starts of a program that never gets to
// Begin. An operator has to go back.
func (m *machine) stays(version string, old checksum.Digest) error {
	err := m.await("a program that crashes at every start", func(selfupdate.Status) bool {
		return strings.Count(m.said(), version+" start\n") > 6
	})
	if err != nil {
		return err
	}
	st, err := selfupdate.ReadStatus(m.target, nil)
	if err != nil {
		return err
	}
	if st.Trial == nil || st.Trial.Started != 0 {
		return fmt.Errorf("the trial is %+v", st.Trial)
	}
	if err := m.want(filepath.Join(m.home, "none")); err != nil { // else it would be installed again, and rightly
		return err
	}
	m.row(version, candidate{behaves: "crash"}, "stays, rolled back by hand", 0)
	if _, err := m.c.run(m.inside(m.guard), "rollback", "--target", m.inside(m.target), "--restart-unit", m.unitName()); err != nil {
		return err
	}
	if st, err = selfupdate.ReadStatus(m.target, nil); err != nil {
		return err
	}
	if st.Phase != "stable" || !st.Current.SHA256.Equal(old) || st.PendingRestart {
		return fmt.Errorf("after the rollback: %+v", st)
	}
	return m.runs()
}

// await polls the status until it is as wanted.
func (m *machine) await(what string, ok func(selfupdate.Status) bool) error {
	for began := time.Now(); time.Since(began) < settleTime; time.Sleep(300 * time.Millisecond) {
		st, err := selfupdate.ReadStatus(m.target, nil)
		if err == nil && ok(st) {
			return nil
		}
	}
	st, err := selfupdate.ReadStatus(m.target, nil)
	return fmt.Errorf("%s did not come within %v: %+v %w", what, settleTime, st, err)
}

// runs wants the file at the target to be what runs, and works.
func (m *machine) runs() error {
	why := error(nil)
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(200 * time.Millisecond) {
		if why = m.runsNow(); why == nil {
			return nil
		}
	}
	return why
}

func (m *machine) runsNow() error {
	props, err := m.c.run("systemctl", "show", "-p", "ActiveState", "-p", "SubState", m.unitName())
	if err != nil {
		return err
	}
	if props != "ActiveState=active\nSubState=running" {
		return errors.New(props)
	}
	want, err := os.Stat(m.target)
	if err != nil {
		return err
	}
	running, err := filepath.Glob("/proc/[0-9]*/exe") // this side sees the container's too
	if err != nil {
		return err
	}
	for _, exe := range running {
		if fi, err := os.Stat(exe); err == nil && os.SameFile(fi, want) {
			return m.works()
		}
	}
	return errors.New("no process runs the target")
}

// works wants that the program that started last is at work.
func (m *machine) works() error {
	started := false
	for line := range strings.Lines(m.said()) {
		switch fields := strings.Fields(line); {
		case len(fields) != 3:
		case fields[2] == "start":
			started = false
		case fields[2] == "works":
			started = true
		}
	}
	if !started {
		return errors.New("the last start does not work")
	}
	return nil
}

// protected wants the status to say what looks after this machine. It is asked
// inside: a container has a boot id of its own.
func (m *machine) protected() error {
	want := "full"
	if m.kind == alone {
		want = "no-helper"
	}
	out, err := m.c.run(m.inside(m.guard), "status", "--target", m.inside(m.target))
	if err == nil && !strings.Contains(out, "protection: "+want+":") {
		err = fmt.Errorf("protection is not %s: %s", want, out)
	}
	return err
}

func (m *machine) row(version string, c candidate, ends string, took time.Duration) {
	starts, after := strconv.Itoa(strings.Count(m.said(), version+" start\n")), ""
	if c.behaves == "noexec" {
		starts = "-"
	}
	if took > 0 {
		after = fmt.Sprintf("%.1f s", took.Seconds())
	}
	m.rows = append(m.rows, strings.Join([]string{string(m.kind), c.behaves, ends, starts, after}, "\t"))
}

// said is what the machine's programs logged.
func (m *machine) said() string {
	b, _ := os.ReadFile(filepath.Join(m.home, "log"))
	return string(b)
}

// builds are the programs, built once.
type builds struct {
	guard  string
	daemon []byte
}

func buildAll(t *testing.T, dir string) *builds {
	t.Helper()
	bin := filepath.Join(dir, "bin")
	require.NoError(t, os.Mkdir(bin, 0o755))
	b := &builds{guard: filepath.Join(bin, "selfupdate-guard")}
	for path, pkg := range map[string]string{b.guard: "../cmd/selfupdate-guard", filepath.Join(bin, "daemon"): "./testdata/daemon"} {
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", path, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	var err error
	b.daemon, err = os.ReadFile(filepath.Join(bin, "daemon"))
	require.NoError(t, err)
	return b
}

// program is the daemon with a version and a behaviour.
func (b *builds) program(version, behaves string) []byte {
	p := b.daemon
	for key, value := range map[string]string{"@version=": version, "@behaves=": behaves} {
		p = bytes.Replace(p, []byte(key+strings.Repeat("0", 15)), fmt.Appendf(nil, "%s%-15s", key, value), 1)
	}
	if behaves == "noexec" {
		p[18] ^= 0x80 // e_machine
	}
	return p
}

func mountSmall(t *testing.T, dir string) {
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=40m,mode=755"))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

func unitText(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(b)
}

func digest(b []byte) checksum.Digest {
	h := sha256.New()
	h.Write(b)
	return checksum.Of(checksum.SHA256, h)
}
