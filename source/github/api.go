package githubsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/go-github/v56/github"

	"github.com/metal-stack/selfreconcile/internal/fetch"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// release is what we read of the API's; go-github's type lacks the digest.
// https://docs.github.com/rest/releases/releases
type release struct {
	ID          int64     `json:"id"`
	Tag         string    `json:"tag_name"`
	Draft       bool      `json:"draft"`
	PreRelease  bool      `json:"prerelease"`
	PublishedAt time.Time `json:"published_at"`
	Assets      []asset   `json:"assets"`
}

type asset struct {
	ID     int64  `json:"id"`
	Name   string `json:"name"`
	State  string `json:"state"`
	Size   int64  `json:"size"`
	Digest string `json:"digest"`
	URL    string `json:"browser_download_url"`
}

const (
	perPage  = 100 // the API's most
	maxPages = 30
)

// errNotModified: the API confirms the ETag that was sent along.
var errNotModified = errors.New("not modified")

// get asks the API for path below the root, with an ETag if there is one.
func (s *Source) get(ctx context.Context, path, etag string, v any) (*github.Response, error) {
	req, err := s.gh.NewRequest(http.MethodGet, path, nil)
	if err != nil {
		return nil, errors.New("the request can't be made") // the cause would quote the URL
	}
	if s.opts.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.opts.Token)
	}
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	resp, err := s.gh.Do(ctx, req, v)
	if err == nil {
		return resp, nil
	}
	if err = s.explain(resp, err); errors.Is(err, errNotModified) && etag == "" {
		err = fmt.Errorf("%w: status 304 without having been asked", selfupdate.ErrResponse)
	}
	return resp, err
}

// explain turns go-github's error into one of ours. Its texts quote the server.
func (s *Source) explain(resp *github.Response, err error) error {
	var limited *github.RateLimitError
	if errors.As(err, &limited) && !limited.Rate.Reset.IsZero() {
		return &selfupdate.RateLimitError{Host: s.api.Host, Reset: limited.Rate.Reset.Time}
	}
	var abuse *github.AbuseRateLimitError
	if errors.As(err, &abuse) && abuse.RetryAfter != nil {
		return &selfupdate.RateLimitError{Host: s.api.Host, Reset: s.now().Add(*abuse.RetryAfter)}
	}
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var date *time.ParseError
	switch {
	case errors.As(err, &syntax), errors.As(err, &kind), errors.As(err, &date):
		return fmt.Errorf("%w: not the JSON that the API is to answer", selfupdate.ErrResponse)
	case resp == nil || resp.StatusCode/100 == 2 && resp.StatusCode != http.StatusAccepted:
		return fetch.Clean(err)
	case resp.StatusCode == http.StatusNotModified:
		return errNotModified
	case resp.StatusCode == http.StatusUnauthorized && s.opts.Token != "":
		return fmt.Errorf("%w: status 401: the token was refused", selfupdate.ErrResponse)
	case resp.StatusCode == http.StatusNotFound && s.opts.Token == "":
		return fmt.Errorf("%w: status 404 (a private repository needs a token)", selfupdate.ErrNotFound)
	}
	if err := fetch.StatusError(resp.Response); err != nil {
		return err
	}
	return fmt.Errorf("%w: status %d", selfupdate.ErrResponse, resp.StatusCode)
}

func (s *Source) path(rest string) string {
	return "repos/" + s.owner + "/" + s.repo + "/releases" + rest
}

// findTag asks for one release by its tag. It never scans the list, which holds
// drafts and ends somewhere.
func (s *Source) findTag(ctx context.Context, tag string) (release, error) {
	path := s.path("/tags/" + fetch.EscapeSegment(tag))
	last := s.recall(&s.named, path)
	var r release
	resp, err := s.get(ctx, path, last.etag, &r)
	switch {
	case errors.Is(err, errNotModified):
		return s.refresh(ctx, last.release)
	case err != nil:
		return release{}, fmt.Errorf("tag %q: %w", tag, err)
	case r.Tag != tag:
		return release{}, fmt.Errorf("%w: the API answers with another tag", selfupdate.ErrResponse)
	}
	if err := s.complete(ctx, &r); err != nil {
		return release{}, err
	}
	s.remember(&s.named, answer{path, resp.Header.Get("ETag"), r})
	return r, nil
}

// findNewest returns the release of the highest version. The first page's ETag
// stands for the list: what is new comes first.
func (s *Source) findNewest(ctx context.Context) (release, error) {
	path := s.path(fmt.Sprintf("?per_page=%d", perPage))
	last := s.recall(&s.newest, path)
	var best choice
	var etag string
	err := pages(func(page int) (*github.Response, error) {
		var list []release
		ask := ""
		if page == 1 {
			ask = last.etag
		}
		resp, err := s.get(ctx, pageOf(path, page), ask, &list)
		if err != nil {
			return nil, err
		}
		if page == 1 {
			etag = resp.Header.Get("ETag")
		}
		for _, r := range list {
			s.consider(&best, r)
		}
		return resp, nil
	})
	switch {
	case errors.Is(err, errNotModified):
		return s.refresh(ctx, last.release)
	case err != nil:
		return release{}, fmt.Errorf("list of releases: %w", err)
	case best.version == "":
		return release{}, fmt.Errorf("%w: no release with a semantic version among those that count", selfupdate.ErrNotFound)
	}
	if err := s.complete(ctx, &best.release); err != nil {
		return release{}, err
	}
	s.remember(&s.newest, answer{path, etag, best.release})
	return best.release, nil
}

// someAssets is the API's usual page size: a release object with as many assets
// may be cut there (at 100, too).
const someAssets = 30

// complete lists the assets where the release object may not have all of them.
func (s *Source) complete(ctx context.Context, r *release) (err error) {
	if len(r.Assets) >= someAssets {
		r.Assets, err = s.allAssets(ctx, r.ID)
	}
	return err
}

// refresh completes a remembered release again while its assets may still be on
// their way: the release object's ETag need not tell.
func (s *Source) refresh(ctx context.Context, r release) (release, error) {
	if s.young(r) || slices.ContainsFunc(r.Assets, asset.notReady) {
		if err := s.complete(ctx, &r); err != nil {
			return release{}, err
		}
	}
	return r, nil
}

// allAssets lists a release's assets.
func (s *Source) allAssets(ctx context.Context, id int64) ([]asset, error) {
	path := s.path(fmt.Sprintf("/%d/assets?per_page=%d", id, perPage))
	var all []asset
	seen := map[int64]bool{}
	err := pages(func(page int) (*github.Response, error) {
		var list []asset
		resp, err := s.get(ctx, pageOf(path, page), "", &list)
		for _, a := range list {
			if !seen[a.ID] { // pages move while someone uploads
				seen[a.ID] = true
				all = append(all, a)
			}
		}
		return resp, err
	})
	if err != nil {
		return nil, fmt.Errorf("list of assets: %w", err)
	}
	return all, nil
}

// pages calls one for each page, as far as the Link header's rel="next" goes.
func pages(one func(page int) (*github.Response, error)) error {
	for page := 1; ; {
		resp, err := one(page)
		if err != nil {
			return err
		}
		switch next := resp.NextPage; {
		case next == 0:
			return nil
		case next <= page:
			return fmt.Errorf("%w: the pages go round in a circle", selfupdate.ErrResponse)
		case next > maxPages:
			return fmt.Errorf("%w: more than %d pages: name the tag", selfupdate.ErrTooLarge, maxPages)
		default:
			page = next
		}
	}
}

// pageOf leaves out the first page's number: then polls ask for one URL.
func pageOf(path string, page int) string {
	if page == 1 {
		return path
	}
	return fmt.Sprintf("%s&page=%d", path, page)
}

func (s *Source) recall(a *answer, path string) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.path != path {
		return answer{}
	}
	return *a
}

func (s *Source) remember(a *answer, got answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*a = got
}
