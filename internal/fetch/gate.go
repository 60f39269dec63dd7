package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// gate is the RoundTripper through which every hop goes, whoever follows the
// redirects. It decides about the scheme and the headers of a hop and watches
// its time.
type gate struct {
	base      http.RoundTripper
	lim       limits
	allowHTTP bool
	agent     string
	log       *slog.Logger
}

// RoundTrip implements http.RoundTripper.
func (g *gate) RoundTrip(req *http.Request) (*http.Response, error) {
	t := tripOf(req.Context())
	if err := checkScheme(req.URL, g.allowHTTP || t != nil && t.httpOK); err != nil {
		return nil, refuse(req, err)
	}
	w, ctx := newWatch(req.Context(), g.lim)
	resp, err := g.base.RoundTrip(g.prepare(req.Clone(ctx), t))
	if err == nil && (resp == nil || resp.Body == nil) { // against the contract, but it must not be our panic
		err = fmt.Errorf("%w: the transport gave no answer", selfupdate.ErrNetwork)
	}
	if werr := w.pause(); werr != nil {
		if err == nil {
			_ = resp.Body.Close()
		}
		w.end()
		err = werr
	}
	if err != nil {
		w.end()
		err = g.late(req.Context(), err)
		g.log.DebugContext(ctx, "no answer", "method", req.Method, "url", shown(req.URL), "error", Clean(err))
		return nil, err
	}
	g.log.DebugContext(ctx, "answer", "method", req.Method, "url", shown(req.URL), "status", resp.StatusCode)
	resp.Request = req // not the clone: it has the credentials
	resp.Body = &watchedBody{ReadCloser: resp.Body, w: w}
	return resp, nil
}

// late replaces the error of a time limit that the caller did not set: net/http's
// match context.DeadlineExceeded.
func (g *gate) late(ctx context.Context, err error) error {
	if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return fmt.Errorf("%w: %s", selfupdate.ErrNetwork, opText(op))
	}
	limit := g.lim.answer
	if t, ok := g.base.(*http.Transport); ok && t.ResponseHeaderTimeout > 0 {
		limit = t.ResponseHeaderTimeout
	}
	return fmt.Errorf("%w: no answer within %s", selfupdate.ErrNetwork, limit)
}

// refuse fails without a request, and closes the body as a RoundTripper must.
func refuse(req *http.Request, err error) error {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return err
}

func (g *gate) prepare(out *http.Request, t *trip) *http.Request {
	// net/http's Referer is the whole URL of the hop before, with its query.
	out.Header.Del("Referer")
	out.Header.Set("Accept-Encoding", "identity")
	if out.Header.Get("User-Agent") == "" {
		out.Header.Set("User-Agent", g.agent)
	}
	if t == nil {
		return out
	}
	for name, values := range t.header {
		out.Header[name] = values
	}
	if out.Response == nil { // the first hop of a try
		t.left = false
	}
	if Origin(out.URL) != Origin(t.url) {
		t.left = true
	}
	if !t.left {
		for name, values := range t.credential {
			out.Header[name] = values
		}
	}
	return out
}

// redirectPolicy returns our rules, followed by the caller's own if there are
// any.
func (g *gate) redirectPolicy(own func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		if err := g.checkRedirect(req, via); err != nil || own == nil {
			return err
		}
		return own(req, via)
	}
}

func (g *gate) checkRedirect(req *http.Request, via []*http.Request) error {
	req.URL.User = nil // a server doesn't get to choose our credentials
	if len(via) > maxRedirects {
		return fmt.Errorf("%w: more than %d redirects", selfupdate.ErrResponse, maxRedirects)
	}
	t := tripOf(req.Context())
	if err := checkScheme(req.URL, g.allowHTTP || t != nil && t.httpOK); err != nil {
		return fmt.Errorf("%w (redirect)", err)
	}
	if via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return fmt.Errorf("%w: redirect from https to %s", selfupdate.ErrInsecure, shown(req.URL))
	}
	if leavesOrigin(req, via) {
		for name := range req.Header {
			if !harmless(name) {
				req.Header.Del(name)
			}
		}
	}
	return nil
}

// leavesOrigin stays true once the chain has left: a way back through a foreign
// host is that host's choice.
func leavesOrigin(req *http.Request, via []*http.Request) bool {
	home := Origin(via[0].URL)
	for _, r := range via {
		if Origin(r.URL) != home {
			return true
		}
	}
	return Origin(req.URL) != home
}

// cappedBody fails a read beyond its limit.
type cappedBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (b *cappedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%w: an answer of more than %d bytes", selfupdate.ErrTooLarge, maxAPIBody)
	}
	return n, err
}
