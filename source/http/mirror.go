package httpsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/metal-stack/selfreconcile/internal/fetch"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// mirrored is one asset at all bases, in order.
type mirrored struct {
	ts   *templates
	urls []*url.URL
	keys []string
}

func (ts *templates) asset(release map[string]string, name string) (selfupdate.Asset, error) {
	if err := fetch.CheckSegment(name); err != nil {
		return selfupdate.Asset{}, noSuch("asset", err)
	}
	values := maps.Clone(release)
	values["name"] = name
	m := &mirrored{ts: ts}
	for _, b := range ts.bases {
		u, err := b.url(values)
		if err != nil {
			return selfupdate.Asset{}, noSuch("asset", err)
		}
		m.urls, m.keys = append(m.urls, u), append(m.keys, b.key)
	}
	return selfupdate.Asset{Name: name, URL: record(m.urls[0]), Size: -1, Open: m.open}, nil
}

// open asks one mirror after the other: what is wrong with one, even a refusal,
// says nothing about the next. It stops at what is not a mirror's fault.
func (m *mirrored) open(ctx context.Context, pos selfupdate.Position) (selfupdate.Body, error) {
	s, c := m.ts.s, m.ts.fetch
	if len(m.urls) == 1 {
		return c.Open(ctx, s.request(m.urls[0], pos))
	}
	var failed []error
	for _, i := range m.ts.order.now() {
		req := s.request(m.urls[i], m.forMirror(i, pos))
		if err := c.Check(req); err != nil {
			failed = append(failed, err)
			break
		}
		b, err := c.Open(ctx, req)
		if err == nil {
			return m.from(ctx, i, b), nil
		}
		if ctx.Err() != nil {
			return selfupdate.Body{}, err
		}
		failed = append(failed, err)
	}
	return selfupdate.Body{}, verdict(failed)
}

// from marks a body as mirror i's.
func (m *mirrored) from(ctx context.Context, i int, b selfupdate.Body) selfupdate.Body {
	lasting := b.Validator != ""
	b.ReadCloser = &mirrorBody{b.ReadCloser, func(err error) {
		class := selfupdate.ClassOf(err)
		// What a later call can continue is worth another try at the same mirror.
		if ctx.Err() == nil && (class == selfupdate.Refused || class == selfupdate.Temporary && !lasting) {
			m.ts.order.last(i)
		}
	}}
	if lasting {
		b.Validator = m.keys[i] + " " + b.Validator
	}
	return b
}

// mirrorBody tells of an error.
type mirrorBody struct {
	io.ReadCloser
	broken func(error)
}

// Read implements io.Reader.
func (b *mirrorBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.broken(err)
	}
	return n, err
}

// ranking is the order in which the mirrors are asked.
type ranking struct {
	mu    sync.Mutex
	order []int
}

func (r *ranking) of(n int) {
	for i := range n {
		r.order = append(r.order, i)
	}
}

func (r *ranking) now() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.order)
}

// last puts mirror i behind all others.
func (r *ranking) last(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order = append(slices.DeleteFunc(r.order, func(j int) bool { return j == i }), i)
}

// forMirror lets a mirror continue only what it began itself: an equal ETag of
// another server is no promise of equal bytes.
func (m *mirrored) forMirror(i int, pos selfupdate.Position) selfupdate.Position {
	v, own := strings.CutPrefix(pos.Validator, m.keys[i]+" ")
	if !own {
		pos.Offset, v = 0, ""
	}
	pos.Validator = v
	return pos
}

// verdict is one error for all mirrors, temporary if any of theirs is. It is
// "not there" only when all said so: a mirror that is behind must not hide that
// the first could not be asked.
func verdict(failed []error) error {
	if len(failed) == 1 {
		return failed[0]
	}
	missing := func(err error) bool { return errors.Is(err, selfupdate.ErrNotFound) }
	refused := func(err error) bool { return selfupdate.ClassOf(err) != selfupdate.Temporary }
	decides := slices.IndexFunc(failed, func(err error) bool { return !missing(err) && !refused(err) })
	if decides < 0 {
		decides = max(0, slices.IndexFunc(failed, refused))
	}
	var others []string
	for i, err := range failed {
		if i != decides {
			others = append(others, err.Error())
		}
	}
	err := fmt.Errorf("%w (other mirrors: %s)", failed[decides], strings.Join(others, "; "))
	if refused(err) && slices.ContainsFunc(failed, missing) {
		return fmt.Errorf("%w: %w", selfupdate.ErrNetwork, err) // it may get there
	}
	return err
}
