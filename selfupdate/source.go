package selfupdate

import (
	"context"
	"fmt"
	"io"

	"github.com/metal-stack/selfreconcile/checksum"
)

// Source finds a release by its version. Sources are dumb: choosing an asset,
// verifying it and writing it are this package's.
type Source interface {
	// Release returns the release of that version; what "" means is the
	// source's to say (a GitHub repository: its newest). A version that does
	// not exist is an error that matches [ErrNotFound].
	Release(ctx context.Context, version string) (Release, error)
}

// Release is a version and the assets published under it. A source makes it
// without any request where it can.
type Release struct {
	// Version is the operator's name for it: an opaque string, not necessarily
	// semver. An empty version is never taken for "the same as last time".
	Version string

	// Assets are those that the source lists; nil where it lists none.
	Assets []Asset

	// Sums names the release's checksum file where the source knows it; "" is
	// the usual order: <asset>.sha256, <asset>.sha512, checksums.txt, SHA256SUMS.
	Sums string

	// Lookup returns an asset that no list named, without a request; nil when
	// the list is complete. A name that the release can't have is an error that
	// matches [ErrNotFound].
	Lookup func(name string) (Asset, error)

	// Young says that the release is known to be so new that missing assets may
	// still be on their way: then their absence is a temporary error.
	Young bool
}

// Asset returns the asset of that exact name, listed or not.
func (r Release) Asset(name string) (Asset, error) {
	for _, a := range r.Assets {
		if a.Name == name {
			return a, nil
		}
	}
	if r.Lookup == nil {
		return Asset{}, fmt.Errorf("%w: no asset %q in release %q", ErrNotFound, name, r.Version)
	}
	return r.Lookup(name)
}

// Asset is one published file.
type Asset struct {
	Name string
	URL  string          // for people and the record; without credentials
	Size int64           // in bytes as the source states it; -1 when it doesn't
	Sum  checksum.Digest // the source's own digest, a second opinion; zero when it has none

	// NotReady says that the source lists the asset but its upload is not
	// complete: a temporary error.
	NotReady bool

	// Open starts to read at pos. Whoever calls it closes the Body.
	Open func(ctx context.Context, pos Position) (Body, error)
}

// Position says where and on which terms [Asset.Open] reads.
type Position struct {
	Offset    int64  // in bytes; 0 is the start
	Validator string // of the earlier read that Offset continues (a strong ETag); "" when there is none

	// Authenticated says that the bytes are checked against a pinned digest or a
	// signature, so that an unencrypted transport is acceptable.
	Authenticated bool
}

// Body is an asset being read. Its reader returns an error, never a plain EOF,
// when the asset ends before Size.
type Body struct {
	io.ReadCloser
	Start     int64  // the offset of the first byte, which may be less than asked for
	Size      int64  // of the whole asset in bytes; -1 when unknown
	Validator string // to pass in the Position of a later read; "" when there is none
	URL       string // after redirects, without query and credentials; for people
}
