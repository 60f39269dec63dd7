// Package hostile holds the proof that a hostile server costs nothing: one table
// of what a server may do, and for each row, over plain http and over TLS, the
// real Updater with the real sources. docs/trust.md shows the table.
//
// The servers are in memory and time is testing/synctest's, so every limit is the
// default that a program gets, and a row that waits for an hour takes no time.
// Rows that wait for nothing run over real sockets too.
package hostile

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

var update = flag.Bool("update", false, "write docs/trust.md anew")

const (
	maxMemory = 32 << 20 // bytes that one update may allocate in all, the servers' own included
	maxText   = 2 << 10  // bytes of an error's text
)

func TestHostile(t *testing.T) {
	eachRow(t, func(t *testing.T, r row, secure bool) {
		inBubble(t, func(t *testing.T) { attacked(t, newWorld(t, r, secure, false)) })
		inBubble(t, func(t *testing.T) { cancelled(t, newWorld(t, r, secure, false)) })
	})
}

// TestHostileOverSockets is for what a connection in memory may hide: resets, and
// the buffers of the kernel. A foreign host is another address of the loopback.
func TestHostileOverSockets(t *testing.T) {
	eachRow(t, func(t *testing.T, r row, secure bool) {
		if r.waits {
			return // for minutes, by the default limits
		}
		w := newWorld(t, r, secure, true)
		defer w.close()
		attacked(t, w)
	})
}

func TestDocument(t *testing.T) { document(t) }

func eachRow(t *testing.T, try func(t *testing.T, r row, secure bool)) {
	for _, g := range groups {
		for _, r := range g.rows {
			if !r.tlsOnly {
				t.Run(r.name+"/plain", func(t *testing.T) { try(t, r, false) })
			}
			t.Run(r.name+"/TLS", func(t *testing.T) { try(t, r, true) })
		}
	}
}

func inBubble(t *testing.T, f func(*testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		f(t)
		time.Sleep(time.Minute) // idle connections end
	})
}

func (w *world) close() {
	w.stop()
	w.wg.Wait()
}

// attacked runs the row, and the same without the hostility: the control.
func attacked(t *testing.T, w *world) {
	before := snapshot(t, w.dir)
	var mem [2]runtime.MemStats
	runtime.ReadMemStats(&mem[0])
	start := time.Now()
	res, err := w.apply(t.Context())
	waited := time.Since(start)
	runtime.ReadMemStats(&mem[1])
	assert.Less(t, mem[1].TotalAlloc-mem[0].TotalAlloc, uint64(maxMemory), "bytes allocated")
	if w.memory {
		assert.Equal(t, w.row.waits, waited > 0, "waited %v", waited)
	}
	t.Logf("%v, %d KiB: %v", waited, (mem[1].TotalAlloc-mem[0].TotalAlloc)>>10, err)
	noLeak(t, w)
	if w.row.want == nil {
		require.NoError(t, err)
		isInstalled(t, w, res)
	} else {
		isRefused(t, w, err, w.row.want, before)
	}

	w.on.Store(false)
	res, err = w.apply(t.Context())
	require.NoError(t, err, "the control")
	if w.row.want != nil {
		isInstalled(t, w, res)
	}
	noLeak(t, w)
}

// cancelled ends the context while the server does what it does.
func cancelled(t *testing.T, w *world) {
	before := snapshot(t, w.dir)
	const after = time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	start := time.Now()
	res, err := w.apply(ctx)
	assert.LessOrEqual(t, time.Since(start), after, "the end of the context ends it")
	noLeak(t, w)
	switch {
	case ctx.Err() != nil:
		require.ErrorIs(t, err, context.DeadlineExceeded)
		isRefused(t, w, err, context.DeadlineExceeded, before)
	case w.row.want == nil:
		require.NoError(t, err)
		isInstalled(t, w, res)
	default:
		isRefused(t, w, err, w.row.want, before)
	}
}

// isRefused checks an error and that nothing happened.
func isRefused(t *testing.T, w *world, err, want error, before map[string]string) {
	t.Helper()
	require.Error(t, err)
	require.ErrorIs(t, err, want)
	if class := selfupdate.ClassOf(want); class != 0 {
		assert.Equal(t, class, selfupdate.ClassOf(err), "%v", err)
	}
	var e *selfupdate.Error
	if errors.As(err, &e) {
		assert.Equal(t, selfupdate.Unchanged, e.State)
		assert.Less(t, len(e.Path), 2*maxText)
		clean(t, e.Path)
	}
	decentError(t, err)
	after := snapshot(t, w.dir)
	if selfupdate.ClassOf(err) == selfupdate.Refused { // the one thing that is documented
		for _, s := range []map[string]string{before, after} {
			s[record] = withoutRefusals(t, s[record])
		}
	}
	assert.Equal(t, before, after)
	st, serr := w.u.Status()
	require.NoError(t, serr)
	for _, h := range st.HeldBack {
		decent(t, h.Reason)
		decent(t, h.URL)
	}
}

func isInstalled(t *testing.T, w *world, res selfupdate.Result) {
	t.Helper()
	assert.Equal(t, selfupdate.Updated, res.Outcome)
	for _, s := range []string{res.URL, res.Policy, res.Version} {
		decent(t, s)
	}
	data, err := os.ReadFile(w.target)
	require.NoError(t, err)
	assert.True(t, string(data) == string(program), "the program is another")
	fi, err := os.Stat(w.target)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o750), fi.Mode())
	slots, err := os.ReadDir(filepath.Join(w.dir, ".app.d", "slots"))
	require.NoError(t, err)
	for _, s := range slots {
		assert.Len(t, s.Name(), sha256.Size*2, "a download was left")
	}
}

// noLeak checks what went over the wire and into the log.
func noLeak(t *testing.T, w *world) {
	t.Helper()
	own := map[string]bool{home: w.row.from == byURL, api: w.row.from != byURL}
	seen := w.requests()
	for _, r := range seen {
		host, _, _ := strings.Cut(r.host, ":")
		if foreign(r.host) || !own[host] {
			assert.NotContains(t, r.text, secret, "at %s", r.host)
		}
		if strings.HasSuffix(r.host, ":"+plainPort) && w.secure {
			t.Errorf("a request in clear: %s", r.text)
		}
		assert.NotContains(t, r.text, "Referer")
	}
	for line := range strings.Lines(w.log.String()) {
		assert.NotContains(t, line, secret)
		assert.NotContains(t, line, signed)
		assert.Less(t, len(line), 2*maxText)
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields))
		for _, v := range fields {
			if s, ok := v.(string); ok {
				decent(t, s)
			}
		}
	}
	w.log.Reset()
}

// decentError walks the whole tree: a text that only %v of a cause shows counts too.
func decentError(t *testing.T, err error) {
	t.Helper()
	decent(t, err.Error())
	decent(t, fmt.Sprintf("%+v", err))
	if u := errors.Unwrap(err); u != nil {
		decentError(t, u)
	}
	if m, ok := err.(interface{ Unwrap() []error }); ok {
		for _, u := range m.Unwrap() {
			decentError(t, u)
		}
	}
}

func decent(t *testing.T, text string) {
	t.Helper()
	assert.Less(t, len(text), maxText, "%.200s", text)
	clean(t, text)
}

func clean(t *testing.T, text string) {
	t.Helper()
	assert.NotContains(t, text, secret)
	assert.NotContains(t, text, signed)
	bad := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError })
	assert.Negative(t, bad, "%q", text)
}

const record = ".app.d/state.json"

// snapshot is everything below dir, by path. Of the lock files only that they are
// there, of directories no times: files come and go in them.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		switch {
		case d.IsDir():
			all[rel] = fmt.Sprint(fi.Mode(), owner(fi))
		case strings.HasSuffix(rel, "lock"):
			all[rel] = fmt.Sprint(fi.Mode())
		default:
			data, rerr := os.ReadFile(p)
			all[rel] = fmt.Sprint(fi.Mode(), owner(fi), links(fi), " ", fi.Size(), fi.ModTime(), " ", fmt.Sprintf("%x", sha256.Sum256(data)))
			if rel == record {
				all[rel] = string(data)
			}
			err = errors.Join(err, rerr)
		}
		return err
	}))
	return all
}

// withoutRefusals is a record as it was before a download was refused.
func withoutRefusals(t *testing.T, text string) string {
	t.Helper()
	var envelope struct {
		Record map[string]any `json:"record"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &envelope))
	delete(envelope.Record, "refusals")
	data, err := json.Marshal(envelope.Record)
	require.NoError(t, err)
	return string(data)
}
