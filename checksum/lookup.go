package checksum

import (
	"fmt"
	"iter"
	"strings"
)

// Lookup returns the digest of asset: its SHA-256, else its SHA-512. With algs
// it is the first of these that the file has, and no other algorithm will do
// ([ErrAlgorithm]).
//
// An entry with exactly this name goes first; "./" before a name is no part of
// it. Without such an entry the name may have directories before it (dist/, bin/,
// any), if all lines with it have the same path: old/app and new/app are
// [ErrAmbiguousName] even if their digests agree. Names are compared byte by
// byte, and no similar name is ever taken.
//
// The same digest twice is accepted. Two digests of one algorithm for the name
// are an [ErrConflict], whatever algs says. An asset that is not there is
// [ErrNotListed], which is not the same as a digest that differs.
func (f *File) Lookup(asset string, algs ...Algorithm) (Digest, error) {
	want := clean(asset)
	m, err := f.find(func(name string) bool { return name == want })
	if err == nil && m.first.Line == 0 {
		m, err = f.find(func(name string) bool { return base(name) == want })
	}
	if err != nil {
		return Digest{}, err
	}
	if m.first.Line == 0 || want == "" {
		return Digest{}, &Error{Err: f.notListed(asset)}
	}
	return m.choose(asset, algs)
}

// matches are the lines for one name: the first of all and the first for each
// algorithm.
type matches struct {
	first Entry
	byAlg [SHA512 + 1]Entry
}

func (f *File) find(match func(name string) bool) (matches, error) {
	var m matches
	for e := range f.all() {
		name := clean(e.Name)
		if !match(name) {
			continue
		}
		if m.first.Line == 0 {
			m.first = e
		}
		if name != clean(m.first.Name) {
			return m, contradiction(ErrAmbiguousName, m.first, e)
		}
		alg := e.Digest.Algorithm()
		if alg == 0 {
			continue
		}
		switch known := &m.byAlg[alg]; {
		case known.Line == 0:
			*known = e
		case !known.Digest.Equal(e.Digest):
			return m, contradiction(ErrConflict, *known, e)
		}
	}
	return m, nil
}

func (m matches) choose(asset string, algs []Algorithm) (Digest, error) {
	if len(algs) == 0 {
		algs = []Algorithm{SHA256, SHA512}
	}
	for _, alg := range algs {
		if int(alg) < len(m.byAlg) && m.byAlg[alg].Line != 0 {
			return m.byAlg[alg].Digest, nil
		}
	}
	for _, e := range m.byAlg {
		if e.Line != 0 {
			return Digest{}, &Error{Line: e.Line, Err: fmt.Errorf("%w: %s has %v only", ErrAlgorithm, quote(asset), e.Digest.alg)}
		}
	}
	return Digest{}, &Error{Line: m.first.Line, Err: fmt.Errorf("%w: %s", ErrWeakOnly, quote(asset))}
}

// all yields every line that names a file; those of other algorithms come last
// and have a zero Digest.
func (f *File) all() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for _, e := range f.entries {
			if !yield(e) {
				return
			}
		}
		for _, s := range f.skipped {
			if !yield(Entry{Name: s.name, Line: s.line}) {
				return
			}
		}
	}
}

func contradiction(sentinel error, a, b Entry) error {
	if a.Line > b.Line {
		a, b = b, a
	}
	return &Error{Line: b.Line, Err: fmt.Errorf("%w: %s here, %s on line %d", sentinel, quote(b.Name), quote(a.Name), a.Line)}
}

// notListed names what was looked for, and what there is instead if that is one
// name: a sidecar of a file that was renamed after its sum was made.
func (f *File) notListed(asset string) error {
	var only string
	lines := 0
	for e := range f.all() {
		if lines++; lines == 1 {
			only = e.Name
		} else if e.Name != only {
			only = ""
		}
	}
	if only == "" {
		return fmt.Errorf("%w for %s among %d lines", ErrNotListed, quote(asset), lines)
	}
	return fmt.Errorf("%w for %s: the file names only %s", ErrNotListed, quote(asset), quote(only))
}

// clean strips the "./" that "sha256sum ./*" puts before names.
func clean(name string) string {
	for strings.HasPrefix(name, "./") {
		name = strings.TrimLeft(name[2:], "/")
	}
	return name
}

func base(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
