// Package fetch is the one HTTP stack of all sources.
package fetch

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// Options configure a [Client]. The zero value is the safe default of
// docs/design.md: https only, 30 s to connect, 15 s for TLS, 30 s for the header,
// a stall limit of 60 s, at least 1 KiB/s after a minute, no total timeout.
type Options struct {
	Client    *http.Client // the caller's: copied, never changed; nil: http.DefaultTransport's settings, proxies from the environment included
	AllowHTTP bool         // http:// for everything
	Stall     time.Duration
	MinRate   int64 // bytes a second after a grace minute
	Retries   int   // after the first try; 0 is the default (4), negative none
	MaxWait   time.Duration
	UserAgent string
	Log       *slog.Logger
}

// Request is one resource to read.
type Request struct {
	URL           string
	Header        http.Header // for every hop
	Credential    http.Header // only to the scheme, host and port of URL
	Offset        int64
	Validator     string
	Size          int64 // as the source states it; -1 unknown
	Authenticated bool  // http:// is acceptable for this one
}

// Client reads resources. It is safe for concurrent use.
type Client struct{ opts Options }

// New returns a Client.
func New(opts Options) *Client { return &Client{opts: opts} }

// Open starts to read a resource of any size. The body resumes by itself when
// the connection breaks.
func (c *Client) Open(ctx context.Context, req Request) (selfupdate.Body, error) {
	panic("fetch: to come")
}

// ReadAll reads a whole resource of at most max bytes: more is an error. It
// also returns the answer's header.
func (c *Client) ReadAll(ctx context.Context, req Request, max int64) ([]byte, http.Header, error) {
	panic("fetch: to come")
}

// HTTPClient returns an *http.Client with the same rules (transport, retries,
// redirects, schemes) for a library that wants one of its own.
func (c *Client) HTTPClient() *http.Client { panic("fetch: to come") }
