// Package githubsource finds releases of a repository on GitHub or GitHub
// Enterprise. [New] is all that a public repository needs:
//
//	gh := githubsource.New("metal-stack", "metalctl")
//	rel, err := gh.Release(ctx, "v0.18.7") // no request: a named tag needs no API
//	rel, err = gh.Release(ctx, "")         // the newest, by the API
//
// Without a token GitHub answers 60 API requests an hour for each address, which
// machines behind one NAT share: name the tag where you can.
package githubsource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/metal-stack/selfreconcile/internal/fetch"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// Options configure a [Source]. The zero value is github.com, public
// repositories, releases that are neither draft nor pre-release, https only.
type Options struct {
	// Client is copied, never changed. nil is one with proxies from the
	// environment.
	Client *http.Client

	// Token, for private repositories and a higher rate limit, is sent to the
	// API's host only. With it every release comes from the API, and so do the
	// assets. The environment is never read.
	Token string

	// APIURL is the exact root of the API, e.g. https://ghe.example.com/api/v3;
	// "" is https://api.github.com. Nothing is appended to it but a slash.
	APIURL string

	// WebURL is the root of the pages, from which a named tag's assets are
	// downloaded without the API. "" derives it from APIURL: https://HOST/api/v3
	// is https://HOST, https://api.NAME.ghe.com is https://NAME.ghe.com, anything
	// else is taken as it is.
	WebURL string

	AllowHTTP   bool          // http:// for everything, the token included
	Stall       time.Duration // without a byte of a download; 0 is 60 s
	PreReleases bool          // "" may be a pre-release: marked as one, or by its version
	Drafts      bool          // "" may be a draft (a token with write access sees them)
	List        bool          // ask the API for named tags too, so that Release.Assets is filled
	Log         *slog.Logger  // debug only; nil is silent
}

// Source is a repository's releases; it implements [selfupdate.Source]. It is
// safe for concurrent use and remembers the last answers of the API, to ask
// whether they changed. Keep one for polling: a "not modified" does not count
// against the rate limit, provided that there is a token.
type Source struct {
	owner, repo string
	opts        Options
	api, web    *url.URL
	err         error // of the configuration
	log         *slog.Logger
	fetch       *fetch.Client
	client      *http.Client // of the API
	now         func() time.Time

	mu    sync.Mutex
	named answer
	pages []page // of the list of releases
}

// New returns the source of a public repository on github.com. A name that no
// repository can have is an error of Release.
func New(owner, repo string) *Source { return build(owner, repo, Options{}) }

// NewWithOptions returns a source of any other kind.
func NewWithOptions(owner, repo string, opts Options) (*Source, error) {
	s := build(owner, repo, opts)
	if s.err != nil {
		return nil, s.err
	}
	return s, nil
}

func build(owner, repo string, opts Options) *Source {
	s := &Source{owner: owner, repo: repo, opts: opts, log: opts.Log, now: time.Now}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.err = s.configure(); s.err != nil {
		return s
	}
	s.fetch = fetch.New(fetch.Options{Client: opts.Client, AllowHTTP: opts.AllowHTTP, Stall: opts.Stall, Log: opts.Log})
	// go-github is given a client of its own and no token: its WithAuthToken would
	// change the client, and its DownloadReleaseAsset sends the token to the storage host.
	hc := *s.fetch.HTTPClient()
	hc.Transport = frugal{hc.Transport}
	s.client = &hc
	return s
}

// Both are stricter than URLs need: what GitHub allows.
var nameOK = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

func (s *Source) configure() (err error) {
	for what, name := range map[string]string{"owner": s.owner, "repository": s.repo} {
		if !nameOK.MatchString(name) || strings.Contains(name, "..") || name == "." {
			return fmt.Errorf("githubsource: %q can't be the name of a %s", name, what)
		}
	}
	if strings.ContainsFunc(s.opts.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return errors.New("githubsource: the token has blanks or control characters")
	}
	api := s.opts.APIURL
	if api == "" {
		api = "https://api.github.com"
	}
	if s.api, err = s.root("APIURL", api); err != nil {
		return err
	}
	if s.api.Scheme == "http" && !s.opts.AllowHTTP { // of WebURL, what is verified by a signature may come so
		return fmt.Errorf("githubsource: APIURL: %w", selfupdate.ErrInsecure)
	}
	if s.opts.WebURL != "" {
		s.web, err = s.root("WebURL", s.opts.WebURL)
		return err
	}
	s.web = webOf(s.api)
	return nil
}

// root parses the root of an API or of pages; the result's path ends in a slash.
func (s *Source) root(what, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, fmt.Errorf("githubsource: %s is not an absolute https URL", what) // the cause would quote it
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("githubsource: %s has more than scheme, host and path", what)
	}
	u.Path = strings.TrimRight(u.Path, "/") + "/"
	u.RawPath = ""
	return u, nil
}

// webOf derives the root of the pages from that of the API.
func webOf(api *url.URL) *url.URL {
	web := *api
	host := strings.ToLower(api.Host)
	switch {
	case host == "api.github.com":
		web.Host = "github.com"
	case strings.HasPrefix(host, "api.") && strings.HasSuffix(host, ".ghe.com"):
		web.Host = host[len("api."):]
	default:
		if path, ok := strings.CutSuffix(web.Path, "api/v3/"); ok {
			web.Path = path
		}
	}
	return &web
}

// Release implements [selfupdate.Source]. A tag of a public repository is not
// asked for: whether it exists shows when an asset is opened. With a Token or
// List it comes from the API by its tag.
//
// "" is the release with the highest semantic version, whatever GitHub marks as
// the latest: that mark is set by hand and by date, and has pointed at old releases
// before. Tags count with and without the v but need major and minor; others
// (nightly, untagged-…, 20240301) are skipped. No release at all is an error that
// matches [selfupdate.ErrNotFound].
//
// A poll costs one request for each 100 releases, at most 30: every page is asked
// for whether it has changed, since a release that is withdrawn from the third page
// leaves the first one as it is. Unchanged pages are free with a token. One more is
// needed for a release with 30 assets or more, for each 100 of them, when it
// becomes the newest. What one answer says about rate limits never keeps the next
// call from asking.
func (s *Source) Release(ctx context.Context, version string) (selfupdate.Release, error) {
	if s.err != nil {
		return selfupdate.Release{}, s.err
	}
	rel, err := s.find(ctx, version)
	if err != nil {
		return selfupdate.Release{}, fmt.Errorf("github: %s/%s: %w", s.owner, s.repo, err)
	}
	return rel, nil
}

func (s *Source) find(ctx context.Context, version string) (selfupdate.Release, error) {
	if version == "" {
		r, err := s.findNewest(ctx)
		if err != nil {
			return selfupdate.Release{}, err
		}
		return s.convert(r), nil
	}
	if err := checkTag(version); err != nil {
		return selfupdate.Release{}, err
	}
	if s.opts.Token == "" && !s.opts.List {
		return s.unlisted(version), nil
	}
	r, err := s.findTag(ctx, version)
	if err != nil {
		return selfupdate.Release{}, err
	}
	return s.convert(r), nil
}

// checkTag refuses what git-check-ref-format(1) does: no such tag exists, and
// some would lead a URL elsewhere. A slash inside is legal.
func checkTag(tag string) error {
	bad := len(tag) > 255 || strings.ContainsAny(tag, " ~^:?*[\\") || strings.Contains(tag, "@{") || strings.HasSuffix(tag, ".")
	for part := range strings.SplitSeq(tag, "/") {
		bad = bad || fetch.CheckSegment(part) != nil || part[0] == '.' || strings.HasSuffix(part, ".lock")
	}
	if bad {
		return fmt.Errorf("%w: this can't be a tag", selfupdate.ErrNotFound)
	}
	return nil
}

// unlisted is the release of a tag, as GitHub lays out its URLs. A slash in the tag
// is escaped, as in the API's browser_download_url (kustomize%2Fv5.0.0).
func (s *Source) unlisted(tag string) selfupdate.Release {
	root := s.web.String() + s.owner + "/" + s.repo + "/releases/download/" + fetch.EscapeSegment(tag) + "/"
	return selfupdate.Release{
		Version: tag,
		Lookup: func(name string) (selfupdate.Asset, error) {
			if err := fetch.CheckSegment(name); err != nil {
				return selfupdate.Asset{}, fmt.Errorf("%w: this can't be an asset's name: %w", selfupdate.ErrNotFound, err)
			}
			u := root + fetch.EscapeSegment(name)
			return selfupdate.Asset{Name: name, URL: u, Size: -1, Open: s.opener(fetch.Request{URL: u, Size: -1})}, nil
		},
	}
}

// opener returns an Asset's Open for a request.
func (s *Source) opener(req fetch.Request) func(context.Context, selfupdate.Position) (selfupdate.Body, error) {
	return func(ctx context.Context, pos selfupdate.Position) (selfupdate.Body, error) {
		req := req
		req.Offset, req.Validator, req.Authenticated = pos.Offset, pos.Validator, pos.Authenticated
		return s.fetch.Open(ctx, req)
	}
}
