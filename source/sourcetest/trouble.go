package sourcetest

import (
	"bytes"
	"io"
	"sync"
	"testing"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// truncated: a plain EOF half-way is how half a program gets installed.
func truncated(t testing.TB, f Fixture) {
	if f.Truncate == nil {
		return
	}
	f.Truncate(true)
	defer f.Truncate(false)
	b, err := f.asset(t).Open(t.Context(), f.at(0, ""))
	if err != nil {
		classed(t, err)
		return
	}
	defer closeBody(t, b)
	got, err := io.ReadAll(b)
	if err == nil {
		t.Errorf("a body that ends after %d of %d bytes gave no error", len(got), len(f.Content))
		return
	}
	classed(t, err)
	if len(got) >= len(f.Content) {
		t.Errorf("Fixture.Truncate does not work: all bytes came")
	}
	if !bytes.HasPrefix(f.Content, got) {
		t.Errorf("the bytes before the error are not the content's")
	}
	if _, again := b.Read(make([]byte, 1)); again == nil || again == io.EOF {
		t.Errorf("Read after an error = %v: the error must stay", again)
	}
}

func closing(t testing.TB, f Fixture) {
	b := f.open(t.Context(), t, f.at(0, ""))
	if _, err := io.ReadFull(b, make([]byte, 1)); err != nil {
		t.Fatalf("the first byte: %v", err)
	}
	closeBody(t, b) // before the end
	closeBody(t, b) // and twice
	if n, err := b.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("Read after Close = %d, %v, want an error", n, err)
	}
}

func closeBody(t testing.TB, b selfupdate.Body) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// concurrent finds its faults with -race.
func concurrent(t testing.TB, f Fixture) {
	var wg sync.WaitGroup
	shared := f.asset(t)
	for range 4 {
		wg.Go(func() {
			r, err := f.Source.Release(t.Context(), f.Version)
			if err != nil {
				t.Errorf("Release(%q): %v", f.Version, err)
				return
			}
			own, err := r.Asset(f.Asset)
			if err != nil {
				t.Errorf("Asset(%q): %v", f.Asset, err)
				return
			}
			readAll(t, f, own)
			readAll(t, f, shared)
		})
	}
	wg.Wait()
}

func readAll(t testing.TB, f Fixture, a selfupdate.Asset) {
	b, err := a.Open(t.Context(), f.at(0, ""))
	if err != nil {
		t.Errorf("Open: %v", err)
		return
	}
	defer closeBody(t, b)
	if got, err := io.ReadAll(b); err != nil || !bytes.Equal(got, f.Content) {
		t.Errorf("read %d of %d bytes, or others: %v", len(got), len(f.Content), err)
	}
}
