// Package fetch is the one HTTP stack of all sources: [Client.Open] for assets,
// [Client.ReadAll] for metadata, [Client.HTTPClient] for a library that wants an
// *http.Client. All three obey the same rules about schemes, redirects,
// credentials, time limits and retries.
//
// What one body costs is bounded, whatever the server does. Each connection must
// bring the minimum rate after a grace minute. Over all connections, with every
// wait for a byte, a header or a retry counted (a slow reader is not), a body
// may be behind that rate by no more than its resumes in a row can take: 8
// minutes with the defaults. It is resumed at most 100 times, and a server
// without ranges sends it at most three times (and 1 MiB).
//
// net/http prints "Unsolicited response received on idle HTTP channel", with the
// first bytes of it, to the standard logger when a server sends something on an
// idle connection. There is no hook for that, and a new connection for each
// request would cost a handshake more: a program that minds passes a Client with
// DisableKeepAlives.
//
// No error text and no log line holds a query, a credential or bytes as they
// came from the network. Every error wraps one of selfupdate's sentinels, so
// that [selfupdate.ClassOf] knows what to do about it.
package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// ErrNotModified is ReadAll's answer to a request with If-None-Match or
// If-Modified-Since when the server answers 304. It has no class: it is not a
// failure.
var ErrNotModified = errors.New("not modified")

// Options configure a [Client]. The zero value is the safe default of
// docs/design.md: https only, 30 s to connect, 15 s for TLS, 30 s for the header,
// a stall limit of 60 s, at least 1 KiB/s after a minute, no total timeout.
type Options struct {
	// Client is the caller's: copied, never changed. Its Transport, Jar and
	// CheckRedirect are used. Its Timeout, which would cut a long body, bounds
	// each wait for a header instead. The time limits are kept with any Transport
	// that obeys the request's context. nil, or a nil Transport:
	// http.DefaultTransport's settings, proxies from the environment included.
	Client *http.Client

	AllowHTTP bool          // http:// for everything
	Stall     time.Duration // without a byte; 0 is 60 s
	MinRate   int64         // bytes a second after a grace minute; 0 is 1 KiB/s, negative none
	Retries   int           // after the first try; 0 is the default (4), negative none
	Backoff   time.Duration // before the first retry, doubled for each further one; 0 is 1 s
	MaxWait   time.Duration // the longest Retry-After that is waited for; 0 is 2 min
	UserAgent string        // "" is "selfreconcile"
	Log       *slog.Logger  // debug only; nil is silent
}

// Request is one resource to read.
type Request struct {
	// URL is absolute, https or http. A user and password in it are a
	// Credential.
	URL string

	// Header is for every hop, except for names that look like a secret
	// (Authorization, Cookie, *Token*, …): those are Credentials.
	Header http.Header

	// Credential is only for the scheme, host and port of URL, and only until
	// the first redirect that leaves it.
	Credential http.Header

	Offset        int64  // where to start; needs Validator, else reading starts at 0
	Validator     string // of the earlier Body that Offset continues
	Size          int64  // as the source states it; 0 and less: unknown
	Authenticated bool   // http:// is acceptable for this one
}

// Client reads resources. It is safe for concurrent use. Its own transport keeps
// idle connections for a few seconds after the last use.
type Client struct {
	lim    limits
	opts   Options
	follow *retryablehttp.Client // follows redirects; a retry starts at the first URL
	hop    *retryablehttp.Client // one hop only, for HTTPClient, which follows by itself
	api    *http.Client
}

// New returns a Client.
func New(opts Options) *Client { return newClient(opts, opts.limits()) }

func newClient(opts Options, lim limits) *Client {
	var hc http.Client
	if opts.Client != nil {
		hc = *opts.Client
	}
	if hc.Timeout > 0 {
		lim.answer = min(lim.answer, hc.Timeout)
	}
	if opts.UserAgent == "" {
		opts.UserAgent = "selfreconcile"
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if hc.Transport == nil {
		hc.Transport = defaultTransport(lim)
	}
	c := &Client{lim: lim, opts: opts}
	g := &gate{base: hc.Transport, lim: lim, allowHTTP: opts.AllowHTTP, agent: opts.UserAgent, log: opts.Log}
	hc.Transport, hc.Timeout = g, 0
	hc.CheckRedirect = g.redirectPolicy(hc.CheckRedirect)
	c.follow = c.retrying(&hc)
	c.hop = c.retrying(&http.Client{Transport: g, CheckRedirect: useLastResponse})

	api := hc
	api.Transport = &apiTransport{retry: c.hop, plain: g}
	c.api = &api
	return c
}

func useLastResponse(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Open starts to read a resource of any size. The body resumes by itself when
// the connection breaks or stalls and the server gave a validator to continue
// with. ctx is for the reading too. Whoever calls Open closes the Body.
//
// A body of at most 64 KiB, as the server states it, is read before Open returns
// and served from memory: a checksum file that breaks is tried again from the
// start, with a validator or without.
//
// With an Offset the Body's Start says where it really begins: at Offset, or at
// 0 when the server can't or won't continue.
func (c *Client) Open(ctx context.Context, req Request) (selfupdate.Body, error) {
	var body selfupdate.Body
	err := c.again(ctx, func() error {
		b, err := c.open(ctx, req)
		if err != nil {
			return err
		}
		body = selfupdate.Body{ReadCloser: b, Start: b.off, Size: b.size, Validator: b.validator, URL: b.url}
		if b.off > 0 || b.size < 0 || b.size > smallBody {
			return nil
		}
		defer func() { _ = b.Close() }()
		data, err := io.ReadAll(b)
		body.ReadCloser = &memory{left: bytes.NewReader(data)}
		return err
	})
	if err != nil {
		return selfupdate.Body{}, err
	}
	return body, nil
}

// memory is a small body that has been read.
type memory struct {
	left   *bytes.Reader
	closed atomic.Bool
}

// Read implements io.Reader.
func (m *memory) Read(p []byte) (int, error) {
	if m.closed.Load() {
		return 0, errClosed
	}
	return m.left.Read(p)
}

// Close implements io.Closer.
func (m *memory) Close() error {
	m.closed.Store(true)
	return nil
}

// again repeats f, which reads a whole body, as long as it breaks in the middle
// and can't be resumed.
func (c *Client) again(ctx context.Context, f func() error) error {
	for try := 0; ; try++ {
		err := f()
		var broken *brokenError
		if err == nil || try >= c.lim.retries || ctx.Err() != nil || !errors.As(err, &broken) {
			return err
		}
		if err := sleep(ctx, c.lim.backoff(try)); err != nil {
			return err
		}
	}
}

// Check returns the error for which Open would not even send req, like http://
// without leave: the caller's configuration is at fault, not the server.
func (c *Client) Check(req Request) error {
	_, err := c.newTrip(req)
	return err
}

// ReadAll reads a whole resource of at most max bytes: more is an error that
// matches [selfupdate.ErrTooLarge]. It also returns the answer's header. A
// connection that breaks and can't be resumed is tried again from the start.
func (c *Client) ReadAll(ctx context.Context, req Request, max int64) ([]byte, http.Header, error) {
	var (
		data   []byte
		header http.Header
	)
	req.Offset = 0
	err := c.again(ctx, func() (err error) {
		data, header, err = c.readOnce(ctx, req, max)
		return err
	})
	return data, header, err
}

func (c *Client) readOnce(ctx context.Context, req Request, max int64) ([]byte, http.Header, error) {
	b, err := c.open(ctx, req)
	if errors.Is(err, ErrNotModified) {
		return nil, b.header, err
	}
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = b.Close() }()
	if b.size > max {
		return nil, nil, tooLarge(b.url, max)
	}
	data, err := io.ReadAll(io.LimitReader(b, max+1))
	if err != nil {
		return nil, nil, err
	}
	if int64(len(data)) > max {
		return nil, nil, tooLarge(b.url, max)
	}
	return data, b.header, nil
}

func tooLarge(url string, max int64) error {
	return fmt.Errorf("%w: %s: more than %d bytes", selfupdate.ErrTooLarge, clip(url), max)
}

// HTTPClient returns an *http.Client with the same rules (transport, retries,
// redirects, schemes, time limits) for a library that wants one of its own. It
// hands over answers of any status (see [StatusError]) and is shared: copy it
// before changing a field.
//
// On a redirect to another scheme, host or port only headers that can't be a
// secret go along. A body is at most 32 MiB. Errors of its Do are *url.Error
// with the whole URL in the text: pass them through [Clean].
func (c *Client) HTTPClient() *http.Client { return c.api }
