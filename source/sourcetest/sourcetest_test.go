package sourcetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// memory is a source without a network, with one fault or none.
type memory struct {
	fault    string
	data     []byte
	requests atomic.Int64
	cut      atomic.Bool
}

func (m *memory) is(fault string) bool { return m.fault == fault }

func (m *memory) Release(ctx context.Context, version string) (selfupdate.Release, error) {
	if m.is("request for a release") {
		m.requests.Add(1)
	}
	if version != "v1" && !m.is("any version") {
		return selfupdate.Release{}, fmt.Errorf("%w: version", selfupdate.ErrNotFound)
	}
	if m.is("other version") {
		version = "1"
	}
	r := selfupdate.Release{Version: version, Lookup: m.lookup}
	if m.is("listed twice") {
		a, _ := m.lookup("app")
		r.Assets = []selfupdate.Asset{a, a}
	}
	return r, nil
}

func (m *memory) lookup(name string) (selfupdate.Asset, error) {
	switch {
	case m.is("any name"):
	case m.is("unclassed error") && name != "app":
		return selfupdate.Asset{}, errors.New("no such file")
	case name != "app":
		return selfupdate.Asset{}, fmt.Errorf("%w: asset", selfupdate.ErrNotFound)
	}
	a := selfupdate.Asset{Name: name, Size: int64(len(m.data)), URL: "https://h/app", Open: m.open}
	switch m.fault {
	case "wrong size":
		a.Size++
	case "size 0":
		a.Size = 0
	case "token in URL":
		a.URL += "?token=x"
	case "no Open":
		a.Open = nil
	}
	return a, nil
}

func (m *memory) open(ctx context.Context, pos selfupdate.Position) (selfupdate.Body, error) {
	m.requests.Add(1)
	if ctx.Err() != nil && !m.is("deaf") {
		return selfupdate.Body{}, fmt.Errorf("%w: %w", selfupdate.ErrNetwork, ctx.Err())
	}
	off := pos.Offset
	if pos.Validator != `"v1"` && !m.is("validator ignored") || off > int64(len(m.data)) {
		off = 0
	}
	size := int64(len(m.data))
	data := m.data[off:]
	switch {
	case m.is("start lies"):
		return selfupdate.Body{ReadCloser: m.body(ctx, data), Size: size, Validator: `"v1"`}, nil
	case m.is("start beyond") && off > 0 && off < size:
		return selfupdate.Body{ReadCloser: m.body(ctx, data[1:]), Start: off + 1, Size: size}, nil
	case m.is("other bytes") && m.requests.Load()%2 == 0:
		data = bytes.ToUpper(data)
	case m.is("body size"):
		size--
	}
	return selfupdate.Body{ReadCloser: m.body(ctx, data), Start: off, Size: size, Validator: `"v1"`, URL: "https://h/app"}, nil
}

func (m *memory) body(ctx context.Context, data []byte) *memoryBody {
	b := &memoryBody{m: m, ctx: ctx, data: data}
	if m.cut.Load() {
		b.data, b.short = data[:len(data)/2], true
	}
	return b
}

type memoryBody struct {
	m      *memory
	ctx    context.Context
	data   []byte
	short  bool
	closed bool
	mu     sync.Mutex
}

func (b *memoryBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed && !b.m.is("readable after close"):
		return 0, errors.New("closed")
	case b.ctx.Err() != nil && b.m.is("EOF when cancelled"):
		return 0, io.EOF
	case b.ctx.Err() != nil && b.m.is("own error when cancelled"):
		return 0, selfupdate.ErrNetwork
	case b.ctx.Err() != nil && !b.m.is("deaf"):
		return 0, fmt.Errorf("%w: %w", selfupdate.ErrNetwork, b.ctx.Err())
	case len(b.data) == 0 && b.short && !b.m.is("truncation unseen"):
		if b.m.is("truncation forgotten") {
			b.short = false
		}
		if b.m.is("truncation unclassed") {
			return 0, io.ErrUnexpectedEOF
		}
		return 0, selfupdate.ErrNetwork
	case len(b.data) == 0:
		return 0, io.EOF
	}
	n := copy(p, b.data[:min(len(b.data), 1000)])
	b.data = b.data[n:]
	return n, nil
}

func (b *memoryBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed && b.m.is("close once") {
		return errors.New("already closed")
	}
	b.closed = true
	return nil
}

func fixture(fault string) Fixture {
	m := &memory{fault: fault, data: []byte(strings.Repeat("0123456789abcdef", 1000) + "z")}
	return Fixture{
		Source: m, Version: "v1", Asset: "app", Content: m.data,
		Requests: func() int { return int(m.requests.Load()) },
		Truncate: m.cut.Store,
	}
}

func TestRun(t *testing.T) { Run(t, fixture("")) }

// recorder is a TB whose failures are only noted.
type recorder struct {
	testing.TB
	failed atomic.Bool
}

func (r *recorder) Errorf(string, ...any) { r.failed.Store(true) }
func (r *recorder) Fatalf(string, ...any) { r.failed.Store(true); runtime.Goexit() }
func (r *recorder) Helper()               {}

// failing returns the names of the checks that fail with that fault.
func failing(t *testing.T, f Fixture) (names []string) {
	for _, c := range checks {
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.run(r, f.withDefaults())
		}()
		<-done
		if r.failed.Load() {
			names = append(names, c.name)
		}
	}
	return names
}

// Every fault is found by the check that is there for it; no fault, no failure.
func TestFaults(t *testing.T) {
	if names := failing(t, fixture("")); names != nil {
		t.Fatalf("without a fault: %v", names)
	}
	for fault, check := range map[string]string{
		"any version":              "unknown version",
		"other version":            "release",
		"listed twice":             "release",
		"any name":                 "impossible asset",
		"unclassed error":          "unknown asset",
		"wrong size":               "release",
		"size 0":                   "release",
		"token in URL":             "release",
		"no Open":                  "release",
		"request for a release":    "no request",
		"body size":                "content",
		"other bytes":              "content",
		"start lies":               "offset",
		"start beyond":             "offset",
		"deaf":                     "cancelled",
		"EOF when cancelled":       "cancelled while reading",
		"own error when cancelled": "cancelled while reading",
		"truncation unseen":        "truncated",
		"truncation forgotten":     "truncated",
		"truncation unclassed":     "truncated",
		"close once":               "close",
		"readable after close":     "close",
	} {
		t.Run(fault, func(t *testing.T) {
			names := failing(t, fixture(fault))
			for _, n := range names {
				if n == check {
					return
				}
			}
			t.Errorf("%q was not found by %q but by %v", fault, check, names)
		})
	}
}

// A source that ignores the validator passes here: only a server whose content
// changes could tell, and the digest does.
func TestValidatorIgnored(t *testing.T) {
	if names := failing(t, fixture("validator ignored")); names != nil {
		t.Errorf("%v", names)
	}
}

// A fixture that can't show a fault is itself at fault.
func TestFixtureFaults(t *testing.T) {
	f := fixture("")
	f.Requests = func() int { return 7 }
	if names := failing(t, f); fmt.Sprint(names) != "[no request]" {
		t.Errorf("a counter that does not count: %v", names)
	}
	f = fixture("")
	f.Truncate = func(bool) {}
	if names := failing(t, f); fmt.Sprint(names) != "[truncated]" {
		t.Errorf("a truncation that does nothing: %v", names)
	}
}

func TestWithin(t *testing.T) {
	r := &recorder{TB: t}
	if err := within(r, "quick", func() error { return io.EOF }); err != io.EOF || r.failed.Load() {
		t.Errorf("within: %v", err)
	}
}
