package githubsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/metal-stack/selfreconcile/internal/fetch"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// answer is one of the API to a tag that is still good while its ETag is.
type answer struct {
	path, etag string
	release    release
}

// page is one of the list of releases, still good while its ETag is.
type page struct {
	reply
	best  choice // with its assets only if it is the best of all pages
	fresh bool   // read now, not remembered
}

// findTag asks for one release by its tag. It never scans the list, which holds
// drafts and ends somewhere.
func (s *Source) findTag(ctx context.Context, tag string) (release, error) {
	path := s.path("/tags/" + fetch.EscapeSegment(tag))
	last := s.recallNamed(path)
	var r release
	got, err := s.get(ctx, path, last.etag, func(body io.Reader) error { return readOne(body, &r) })
	switch {
	case errors.Is(err, errNotModified):
		r = last.release
		err = s.refresh(ctx, &r)
		return r, err
	case err != nil:
		return release{}, fmt.Errorf("tag %q: %w", tag, err)
	case r.Tag != tag:
		return release{}, fmt.Errorf("%w: the API answers with another tag", selfupdate.ErrResponse)
	}
	s.checkDate(r)
	if err := s.complete(ctx, &r); err != nil {
		return release{}, err
	}
	s.remember(func() { s.named = answer{path, got.etag, r} })
	return r, nil
}

// findNewest returns the release of the highest version. Every page is asked for
// whether it has changed: one that lost or gained a release further back leaves
// those before it as they are.
func (s *Source) findNewest(ctx context.Context) (release, error) {
	known := s.recallPages()
	var list []page
	err := pages(func(n int) (int, error) {
		var last page
		if n <= len(known) {
			last = known[n-1]
		}
		p, err := s.readPage(ctx, n, last)
		list = append(list, p)
		return p.next, err
	})
	if err != nil {
		return release{}, fmt.Errorf("list of releases: %w", err)
	}
	best := s.newest(list)
	if best == nil {
		return release{}, fmt.Errorf("%w: no release with a semantic version among those that count", selfupdate.ErrNotFound)
	}
	r := &best.best.release
	if best.fresh {
		err = s.complete(ctx, r)
	} else {
		err = s.refresh(ctx, r)
	}
	if err != nil {
		return release{}, err
	}
	s.remember(func() { s.pages = list })
	return *r, nil
}

// readPage asks for a page of the list, or whether it is still the last one.
func (s *Source) readPage(ctx context.Context, n int, last page) (page, error) {
	p := page{fresh: true}
	got, err := s.get(ctx, pageOf(s.path(fmt.Sprintf("?per_page=%d", perPage)), n), last.etag, func(body io.Reader) error {
		return readList(body, perPage, func(r release) { s.consider(&p.best, r) })
	})
	if errors.Is(err, errNotModified) {
		last.fresh = false
		return last, nil
	}
	p.reply = got
	return p, err
}

// newest returns the page with the newest release, nil without one. The other
// pages' lose their assets: thirty hostile pages would be much to remember.
func (s *Source) newest(list []page) *page {
	var best choice
	var at *page
	for i := range list {
		if list[i].best.version != "" && s.consider(&best, list[i].best.release) {
			at = &list[i]
		}
	}
	for i := range list {
		if p := &list[i]; p != at {
			p.best.release.Assets, p.best.release.partial = nil, true
		}
	}
	return at
}

// someAssets is the API's usual page size: a release object with as many assets
// may be cut there (at 100, too).
const someAssets = 30

// complete lists the assets where the release may not have all of them.
func (s *Source) complete(ctx context.Context, r *release) error {
	if !r.partial && len(r.Assets) < someAssets {
		return nil
	}
	all, err := s.allAssets(ctx, r.ID)
	if err != nil {
		return err
	}
	r.Assets, r.partial = all, false
	return nil
}

// refresh completes a remembered release again while its assets may still be on
// their way: the release object's ETag need not tell.
func (s *Source) refresh(ctx context.Context, r *release) error {
	if r.partial || s.young(*r) || slices.ContainsFunc(r.Assets, asset.notReady) {
		return s.complete(ctx, r)
	}
	return nil
}

// allAssets lists a release's assets.
func (s *Source) allAssets(ctx context.Context, id int64) ([]asset, error) {
	path := s.path(fmt.Sprintf("/%d/assets?per_page=%d", id, perPage))
	var all []asset
	seen := map[int64]bool{}
	err := pages(func(n int) (int, error) {
		got, err := s.get(ctx, pageOf(path, n), "", func(body io.Reader) error {
			return readList(body, perPage, func(a asset) {
				if !seen[a.ID] { // pages move while someone uploads
					seen[a.ID] = true
					all = append(all, a.bounded())
				}
			})
		})
		if err == nil && len(all) > maxAssets {
			err = fmt.Errorf("%w: more than %d", selfupdate.ErrTooLarge, maxAssets)
		}
		return got.next, err
	})
	if err != nil {
		return nil, fmt.Errorf("list of assets: %w", err)
	}
	return all, nil
}

func (s *Source) recallNamed(path string) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.named.path != path {
		return answer{}
	}
	return s.named
}

// recallPages returns what is never written to again.
func (s *Source) recallPages() []page {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pages
}

func (s *Source) remember(set func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set()
}

// forget makes the next requests unconditional.
func (s *Source) forget() { s.remember(func() { s.named, s.pages = answer{}, nil }) }
