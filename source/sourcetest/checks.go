package sourcetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// prompt is far longer than anything here takes and shorter than what a person
// waits for a test.
const prompt = 10 * time.Second

func release(t testing.TB, f Fixture) {
	r := f.release(t)
	if r.Version != f.Version {
		t.Errorf("Release(%q).Version = %q: versions are opaque", f.Version, r.Version)
	}
	seen := map[string]bool{}
	for _, a := range r.Assets {
		if a.Name == "" || seen[a.Name] {
			t.Errorf("listed asset %q is nameless or twice there", a.Name)
		}
		seen[a.Name] = true
		checkAsset(t, a)
	}
	a := f.asset(t)
	if a.Name != f.Asset {
		t.Errorf("Asset(%q).Name = %q", f.Asset, a.Name)
	}
	checkAsset(t, a)
	if n := int64(len(f.Content)); a.Size != -1 && a.Size != n {
		t.Errorf("Asset(%q).Size = %d, want %d or -1", f.Asset, a.Size, n)
	}
}

func checkAsset(t testing.TB, a selfupdate.Asset) {
	t.Helper()
	if a.Open == nil {
		t.Errorf("asset %q has no Open", a.Name)
	}
	if a.Size < -1 {
		t.Errorf("asset %q: Size = %d", a.Name, a.Size)
	}
	checkURL(t, a.URL)
}

// checkURL: URLs are written to records and logs.
func checkURL(t testing.TB, s string) {
	t.Helper()
	if u, err := url.Parse(s); err != nil || u.User != nil || u.RawQuery != "" {
		t.Errorf("a URL that does not parse, or with credentials or a query, is for nobody to see")
	}
}

func unknownVersion(t testing.TB, f Fixture) {
	r, err := f.Source.Release(t.Context(), f.UnknownVersion)
	if err == nil {
		err = firstError(t, f, r, f.Asset)
	}
	if !errors.Is(err, selfupdate.ErrNotFound) {
		t.Errorf("unknown version: %v, want ErrNotFound from Release, Asset or Open", err)
	}
}

func unknownAsset(t testing.TB, f Fixture) {
	if err := firstError(t, f, f.release(t), f.UnknownAsset); !errors.Is(err, selfupdate.ErrNotFound) {
		t.Errorf("unknown asset: %v, want ErrNotFound from Asset or Open", err)
	}
}

// firstError is the error of Asset, Open or the first Read.
func firstError(t testing.TB, f Fixture, r selfupdate.Release, name string) error {
	a, err := r.Asset(name)
	if err != nil {
		return err
	}
	b, err := a.Open(t.Context(), f.at(0, ""))
	if err != nil {
		return err
	}
	defer closeBody(t, b)
	_, err = b.Read(make([]byte, 1))
	return err
}

// impossibleAsset: such a name would leave the release's directory, or could not
// be shown.
func impossibleAsset(t testing.TB, f Fixture) {
	r := f.release(t)
	for _, name := range []string{"", ".", "..", "../" + f.Asset, f.Asset + "/", "a/" + f.Asset, "..\\" + f.Asset,
		f.Asset + "\x00", "\x1b[31m" + f.Asset, f.Asset + "\n", strings.Repeat("a", 256)} {
		_, err := r.Asset(name)
		if err == nil {
			t.Errorf("Asset(%q): no error", name)
		} else if !errors.Is(err, selfupdate.ErrNotFound) {
			t.Errorf("Asset(%q): %v, want ErrNotFound", name, err)
		}
	}
}

func noRequest(t testing.TB, f Fixture) {
	if f.Requests == nil {
		return
	}
	before := f.Requests()
	r := f.release(t)
	_, _ = r.Asset(f.Asset)
	_, _ = r.Asset(f.UnknownAsset)
	if n := f.Requests() - before; n != 0 {
		t.Errorf("Release and Asset made %d requests, want none", n)
	}
	closeBody(t, f.open(t.Context(), t, f.at(0, "")))
	if f.Requests() == before { // else the counter is broken and the check above says nothing
		t.Errorf("Open was not counted: Fixture.Requests does not work")
	}
}

func content(t testing.TB, f Fixture) {
	for range 2 {
		b := f.open(t.Context(), t, f.at(0, ""))
		if b.Start != 0 {
			t.Errorf("Start = %d without an offset", b.Start)
		}
		if n := int64(len(f.Content)); b.Size != -1 && b.Size != n {
			t.Errorf("Body.Size = %d, want %d or -1", b.Size, n)
		}
		checkURL(t, b.URL)
		lineUp(t, f, b)
		if n, err := b.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("Read after the end = %d, %v, want 0, EOF", n, err)
		}
		closeBody(t, b)
	}
}

// lineUp reads b to its end and compares it with the content from Start on.
func lineUp(t testing.TB, f Fixture, b selfupdate.Body) {
	t.Helper()
	got, err := io.ReadAll(b)
	if err != nil {
		t.Fatalf("reading from %d: %v", b.Start, err)
	}
	if b.Start < 0 || b.Start > int64(len(f.Content)) {
		t.Fatalf("Start = %d of %d", b.Start, len(f.Content))
	}
	if !bytes.Equal(got, f.Content[b.Start:]) {
		t.Errorf("the %d bytes from %d on are not the content's", len(got), b.Start)
	}
}

func (f Fixture) validator(t testing.TB) string {
	b := f.open(t.Context(), t, f.at(0, ""))
	defer closeBody(t, b)
	return b.Validator
}

func offset(t testing.TB, f Fixture) {
	offsets(t, f, f.validator(t))
}

func offsetWithoutValidator(t testing.TB, f Fixture) {
	offsets(t, f, "")
	offsets(t, f, `"of something else"`)
}

func offsets(t testing.TB, f Fixture, validator string) {
	n := int64(len(f.Content))
	for _, off := range []int64{1, n / 2, n - 1} {
		b := f.open(t.Context(), t, f.at(off, validator))
		if b.Start > off {
			t.Errorf("Open at %d: Start = %d leaves a gap", off, b.Start)
		}
		lineUp(t, f, b)
		closeBody(t, b)
	}
}

// offsetBeyond: an error, or as at any other offset.
func offsetBeyond(t testing.TB, f Fixture) {
	v := f.validator(t)
	for _, off := range []int64{int64(len(f.Content)), int64(len(f.Content)) + 10} {
		b, err := f.asset(t).Open(t.Context(), f.at(off, v))
		if err != nil {
			classed(t, err)
			continue
		}
		if b.Start > off {
			t.Errorf("Open at %d: Start = %d leaves a gap", off, b.Start)
		}
		lineUp(t, f, b)
		closeBody(t, b)
	}
}

func cancelled(t testing.TB, f Fixture) {
	a := f.asset(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := within(t, "Open with a cancelled context", func() error {
		b, err := a.Open(ctx, f.at(0, ""))
		if err == nil {
			defer closeBody(t, b)
			_, err = io.ReadAll(b)
		}
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Open with a cancelled context: %v, want context.Canceled", err)
	}
	if f.Requests == nil {
		_ = within(t, "Release with a cancelled context", func() error { _, err := f.Source.Release(ctx, f.Version); return err })
	}
}

// cancelledReading: what is in a buffer may still come, then the error.
func cancelledReading(t testing.TB, f Fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := f.open(ctx, t, f.at(0, ""))
	defer closeBody(t, b)
	if _, err := io.ReadFull(b, make([]byte, 1)); err != nil {
		t.Fatalf("the first byte: %v", err)
	}
	cancel()
	var rest []byte
	err := within(t, "reading with a cancelled context", func() (err error) {
		rest, err = io.ReadAll(b)
		return err
	})
	if !bytes.HasPrefix(f.Content[1:], rest) {
		t.Errorf("after cancelling, bytes that are not the content's")
	}
	if err == nil && len(rest) < len(f.Content)-1 {
		t.Errorf("after cancelling, EOF before the end")
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("after cancelling: %v, want context.Canceled", err)
	}
}

// within runs f and fails when it takes too long.
func within(t testing.TB, what string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(prompt):
		t.Fatalf("%s: still running", what)
		return nil
	}
}

func classed(t testing.TB, err error) {
	t.Helper()
	if selfupdate.ClassOf(err) == 0 {
		t.Errorf("an error without a class: %v", err)
	}
}
