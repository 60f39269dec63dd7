package githubsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"

	"github.com/google/go-github/v56/github"

	"github.com/metal-stack/selfreconcile/internal/fetch"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

const (
	perPage  = 100 // the API's most
	maxPages = 30
)

// errNotModified: the API confirms the ETag that was sent along.
var errNotModified = errors.New("not modified")

// reply is what an answer says besides its body.
type reply struct {
	etag string // "" when there is none worth keeping
	next int    // page; 0 behind the last one
}

// get asks the API for path below the root, with an ETag if there is one. read
// is called with the body of a 200 only.
func (s *Source) get(ctx context.Context, path, etag string, read func(io.Reader) error) (reply, error) {
	// A client for each request: go-github keeps what an answer says about rate
	// limits, a 200 too, and sends nothing until that time. One wrong header would
	// silence the source for as long as its process runs.
	gh := github.NewClient(s.client)
	gh.BaseURL, gh.UserAgent = s.api, "selfreconcile"
	req, err := gh.NewRequest(http.MethodGet, path, nil)
	if err != nil {
		return reply{}, errors.New("the request can't be made") // the cause would quote the URL
	}
	if s.opts.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.opts.Token)
	}
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	resp, err := gh.BareDo(ctx, req)
	if resp == nil {
		return reply{}, fetch.Clean(err)
	}
	defer func() { _ = resp.Body.Close() }()
	// go-github's error is about the same status; its texts quote the server.
	if err := s.statusError(resp.Response, etag != ""); err != nil {
		return reply{}, err
	}
	if err := read(resp.Body); err != nil {
		return reply{}, explainJSON(err)
	}
	next, err := nextPage(resp)
	return reply{etagOf(resp.Header), next}, err
}

// statusError returns nil for 200 only. When a limit ends is what fetch makes of
// it, which believes no absurd date.
func (s *Source) statusError(resp *http.Response, conditional bool) error {
	code := resp.StatusCode
	if conditional && code >= 400 {
		s.forget() // it may be the ETag that is refused, as a header too long for a proxy
	}
	switch {
	case code == http.StatusOK:
		return nil
	case code == http.StatusNotModified && conditional:
		return errNotModified
	case code == http.StatusNotModified:
		return fmt.Errorf("%w: status 304 without having been asked", selfupdate.ErrResponse)
	case code == http.StatusUnauthorized && s.opts.Token != "":
		return fmt.Errorf("%w: status 401: the token was refused", selfupdate.ErrResponse)
	case code == http.StatusNotFound && s.opts.Token == "":
		return fmt.Errorf("%w: status 404 (a private repository needs a token)", selfupdate.ErrNotFound)
	}
	if err := fetch.StatusError(resp); err != nil {
		return err
	}
	return fmt.Errorf("%w: status %d", selfupdate.ErrResponse, code)
}

// An entity-tag of RFC 9110 section 8.8.3, without obs-text.
var etagOK = regexp.MustCompile(`^(W/)?"[!#-~]*"$`)

// etagOf returns an answer's ETag if it is one that can be sent back: not every
// server and proxy takes a header of any length.
func etagOf(h http.Header) string {
	const most = 256
	if etag := h.Get("ETag"); len(etag) <= most && etagOK.MatchString(etag) {
		return etag
	}
	return ""
}

var nextLink = regexp.MustCompile(`(?i);\s*rel\s*=\s*("[^"]*\bnext\b|next\b)`)

// nextPage returns the page number of the Link header's rel="next", 0 without
// one. Only the number is taken: the request goes to the API's root, whatever host
// the link names. A link that go-github finds no number in is an error, since
// the list would end there and nobody would know.
func nextPage(resp *github.Response) (int, error) {
	if resp.NextPage > 0 {
		return resp.NextPage, nil
	}
	for _, link := range resp.Header.Values("Link") {
		if nextLink.MatchString(link) {
			return 0, fmt.Errorf("%w: the link to the next page has no page number", selfupdate.ErrResponse)
		}
	}
	return 0, nil
}

// pages calls one for each page until it says that there is no next one.
func pages(one func(page int) (next int, err error)) error {
	for page := 1; ; page++ {
		switch next, err := one(page); {
		case err != nil:
			return err
		case next == 0:
			return nil
		case next != page+1: // in a circle, or one is left out
			return fmt.Errorf("%w: page %d is followed by page %d", selfupdate.ErrResponse, page, next)
		case next > maxPages:
			return fmt.Errorf("%w: more than %d pages: name the tag", selfupdate.ErrTooLarge, maxPages)
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

func (s *Source) path(rest string) string {
	return "repos/" + s.owner + "/" + s.repo + "/releases" + rest
}
