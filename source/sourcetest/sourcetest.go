// Package sourcetest is the conformance suite that every [selfupdate.Source]
// passes, this module's and an importer's: call [Run] in a test of the source,
// against a server of the test's own.
package sourcetest

import (
	"context"
	"testing"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// Fixture is a source and what is known about it. Everything is asked for many
// times and concurrently.
type Fixture struct {
	Source selfupdate.Source

	Version string // of a release that exists
	Asset   string // in it
	Content []byte // of that asset, at least 3 bytes; some 100 KiB make cancelling a better test

	UnknownVersion string // "" is "v0.0.0-no-such-version"
	UnknownAsset   string // "" is "no-such-asset"

	// Authenticated is passed in each Position: for a server that speaks http.
	Authenticated bool

	// Requests returns how many requests the server has seen. With it, Release
	// and Asset must make none. nil: they may, and nothing is counted.
	Requests func() int

	// Truncate makes every body of the server end half-way, again and again, until
	// it is called with false. nil: bodies that end early are not tested.
	Truncate func(on bool)
}

// Run runs the suite, each requirement as a subtest.
func Run(t *testing.T, f Fixture) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(t, f.withDefaults()) })
	}
}

// check is one requirement. testing.TB, so that the suite's own test can see it
// fail.
type check struct {
	name string
	run  func(t testing.TB, f Fixture)
}

var checks = []check{
	{"release", release},
	{"unknown version", unknownVersion},
	{"unknown asset", unknownAsset},
	{"impossible asset", impossibleAsset},
	{"no request", noRequest},
	{"content", content},
	{"offset", offset},
	{"offset without validator", offsetWithoutValidator},
	{"offset beyond the end", offsetBeyond},
	{"cancelled", cancelled},
	{"cancelled while reading", cancelledReading},
	{"truncated", truncated},
	{"close", closing},
	{"concurrent", concurrent},
}

func (f Fixture) withDefaults() Fixture {
	if f.UnknownVersion == "" {
		f.UnknownVersion = "v0.0.0-no-such-version"
	}
	if f.UnknownAsset == "" {
		f.UnknownAsset = "no-such-asset"
	}
	return f
}

func (f Fixture) release(t testing.TB) selfupdate.Release {
	t.Helper()
	r, err := f.Source.Release(t.Context(), f.Version)
	if err != nil {
		t.Fatalf("Release(%q): %v", f.Version, err)
	}
	return r
}

func (f Fixture) asset(t testing.TB) selfupdate.Asset {
	t.Helper()
	a, err := f.release(t).Asset(f.Asset)
	if err != nil {
		t.Fatalf("Asset(%q): %v", f.Asset, err)
	}
	if a.Open == nil {
		t.Fatalf("Asset(%q) has no Open", f.Asset)
	}
	return a
}

func (f Fixture) at(off int64, validator string) selfupdate.Position {
	return selfupdate.Position{Offset: off, Validator: validator, Authenticated: f.Authenticated}
}

func (f Fixture) open(ctx context.Context, t testing.TB, pos selfupdate.Position) selfupdate.Body {
	t.Helper()
	b, err := f.asset(t).Open(ctx, pos)
	if err != nil {
		t.Fatalf("Open at %d: %v", pos.Offset, err)
	}
	if b.ReadCloser == nil {
		t.Fatalf("Open at %d: a Body without reader", pos.Offset)
	}
	return b
}
