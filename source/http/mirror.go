package httpsource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

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

// open asks one mirror after the other, as long as the errors are temporary.
func (m *mirrored) open(ctx context.Context, pos selfupdate.Position) (selfupdate.Body, error) {
	if len(m.urls) == 1 {
		return m.ts.s.open(ctx, m.ts.fetch, m.urls[0], pos)
	}
	var failed []error
	for i, u := range m.urls {
		b, err := m.ts.s.open(ctx, m.ts.fetch, u, m.forMirror(i, pos))
		if err == nil {
			if b.Validator != "" {
				b.Validator = m.keys[i] + " " + b.Validator
			}
			return b, nil
		}
		if ctx.Err() != nil {
			return selfupdate.Body{}, err
		}
		failed = append(failed, err)
		if selfupdate.ClassOf(err) != selfupdate.Temporary {
			break
		}
	}
	return selfupdate.Body{}, verdict(failed)
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

// verdict is one error for all mirrors. It is "not there" only when all said so:
// a mirror that is behind must not hide that the first could not be asked.
func verdict(failed []error) error {
	decides := max(0, slices.IndexFunc(failed, func(err error) bool { return !errors.Is(err, selfupdate.ErrNotFound) }))
	if len(failed) == 1 {
		return failed[0]
	}
	var others []string
	for i, err := range failed {
		if i != decides {
			others = append(others, err.Error())
		}
	}
	return fmt.Errorf("%w (other mirrors: %s)", failed[decides], strings.Join(others, "; "))
}
