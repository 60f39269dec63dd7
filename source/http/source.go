// Package httpsource is releases on plain web servers: [Release] for one URL,
// [Source.Template] for a directory of versions and its mirrors. No release is
// made with a request: the first is the checksum file's.
package httpsource

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/metal-stack/selfreconcile/internal/fetch"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// Options configure a [Source]. The zero value is the safe default: https only,
// limits to connect (30 s), for the header (30 s) and between two bytes (60 s),
// at least 1 KiB/s after a minute, no total limit, no credentials.
type Options struct {
	// Client is the caller's: copied, never changed; its Transport, Jar and
	// CheckRedirect are used, its Timeout only bounds the wait for each header.
	// nil: http.DefaultTransport's settings, proxies from the environment included.
	Client *http.Client

	// AllowHTTP accepts http:// for everything. Without it, http:// is accepted
	// for what a pinned digest or a signature verifies.
	AllowHTTP bool

	Stall   time.Duration // the longest wait for a byte; 0 is 60 s
	Retries int           // of a request after its first try; 0 is 4 (1 where there are mirrors), negative none
	MaxWait time.Duration // the longest Retry-After to wait for; 0 is 2 min, a longer one is a temporary error

	// Header goes along with every request, to every host. A name that looks like
	// a secret's (Authorization, Private-Token, …) does not belong here: it is sent
	// only to the host of the URL that was asked for.
	Header http.Header

	// Credentials are headers by the origin that they are for, like
	// "https://releases.example.com" or "http://10.0.0.1:8080". No other origin
	// ever sees them, not by a redirect either. Over http:// they also want
	// AllowHTTP.
	Credentials map[string]http.Header

	UserAgent string       // "" is "selfreconcile"
	Log       *slog.Logger // debug only; nil is silent
}

// Source makes releases out of URLs. It is safe for concurrent use.
type Source struct {
	opts       Options
	credential map[string]http.Header // by fetch.Origin
	fetch      *fetch.Client
	err        error // of the options; said by whatever returns an error
}

// New returns a Source. Credentials for something that is not an origin are an
// error of every later call.
func New(opts Options) *Source {
	s := &Source{opts: opts, credential: map[string]http.Header{}, fetch: fetch.New(opts.fetch())}
	for origin, header := range opts.Credentials {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Path != "" && u.Path != "/" {
			s.err = errors.New("httpsource: Credentials: a key is not an origin like https://releases.example.com")
			continue
		}
		s.credential[fetch.Origin(u)] = header.Clone()
	}
	return s
}

func (o Options) fetch() fetch.Options {
	return fetch.Options{
		Client:    o.Client,
		AllowHTTP: o.AllowHTTP,
		Stall:     o.Stall,
		Retries:   o.Retries,
		MaxWait:   o.MaxWait,
		UserAgent: o.UserAgent,
		Log:       o.Log,
	}
}

func (s *Source) request(u *url.URL, pos selfupdate.Position) fetch.Request {
	return fetch.Request{
		URL:           u.String(),
		Header:        s.opts.Header,
		Credential:    s.credential[fetch.Origin(u)],
		Offset:        pos.Offset,
		Validator:     pos.Validator,
		Size:          -1,
		Authenticated: pos.Authenticated,
	}
}

// record is u for people and the record: without user, password and query. URLs
// that differ in the query only must still differ, so a part of its digest
// stands for it.
func record(u *url.URL) string {
	if u.RawQuery == "" {
		return fetch.Display(u)
	}
	return fetch.Display(u) + "#query-" + shortHash(u.RawQuery)
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// noSuch is the error for a name or version that can't be.
func noSuch(what string, err error) error {
	return fmt.Errorf("%w: no such %s: %w", selfupdate.ErrNotFound, what, err)
}
