package fetch

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// trip is what the gate has to know about the request that a hop belongs to. It
// travels in the context: http.Client copies the headers that it sees to
// redirects by rules of its own, so it sees none of ours.
type trip struct {
	url        *url.URL
	header     http.Header // every hop
	credential http.Header // only url's origin
	httpOK     bool
	left       bool // a redirect has left url's origin
}

type tripKey struct{}

func tripOf(ctx context.Context) *trip {
	t, _ := ctx.Value(tripKey{}).(*trip)
	return t
}

func (c *Client) newTrip(req Request) (*trip, error) {
	u, err := url.Parse(req.URL)
	if err != nil || u.Host == "" || u.Opaque != "" {
		if u != nil && u.Scheme != "" && !isWeb(u) {
			return nil, badScheme(u)
		}
		return nil, fmt.Errorf("%w: not an absolute URL", selfupdate.ErrResponse) // the cause would quote it
	}
	t := &trip{
		url:        u,
		header:     http.Header{},
		credential: req.Credential.Clone(),
		httpOK:     c.opts.AllowHTTP || req.Authenticated,
	}
	if t.credential == nil {
		t.credential = http.Header{}
	}
	for name, values := range req.Header {
		if looksSecret(name) {
			t.credential[http.CanonicalHeaderKey(name)] = values
		} else {
			t.header[http.CanonicalHeaderKey(name)] = values
		}
	}
	t.takeUserinfo()
	if err := checkScheme(u, t.httpOK); err != nil {
		return nil, err
	}
	if u.Scheme == "http" && len(t.credential) > 0 && !c.opts.AllowHTTP {
		return nil, fmt.Errorf("%w: %s: a credential would be sent in clear", selfupdate.ErrInsecure, shown(u))
	}
	return t, nil
}

// takeUserinfo turns the user and password of the URL into a credential, which
// has rules, while net/http would send them along with a redirect's Referer.
func (t *trip) takeUserinfo() {
	user := t.url.User
	if user == nil {
		return
	}
	t.url.User, t.url.Fragment = nil, ""
	if t.credential.Get("Authorization") != "" {
		return
	}
	r := http.Request{Header: t.credential}
	pass, _ := user.Password()
	r.SetBasicAuth(user.Username(), pass)
}

// from asks for the bytes from off on, if they are still those of validator.
func (t *trip) from(off int64, validator string) {
	t.header.Del("Range")
	t.header.Del("If-Range")
	if off > 0 {
		t.header.Set("Range", "bytes="+strconv.FormatInt(off, 10)+"-")
		t.header.Set("If-Range", validator)
	}
}

func (t *trip) conditional() bool {
	return t.header.Get("If-None-Match") != "" || t.header.Get("If-Modified-Since") != ""
}

// looksSecret errs on the safe side: a header that is taken for a secret only
// stays with the host that it was meant for.
func looksSecret(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"auth", "token", "cookie", "secret", "key", "password", "credential", "session"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// harmless names the headers that HTTPClient's redirects keep on their way to
// another origin: a library's own headers can't be told from its secrets.
func harmless(name string) bool {
	switch name {
	case "Accept", "Accept-Encoding", "Accept-Language", "User-Agent", "Range", "Content-Type", "X-Github-Api-Version":
		return true
	}
	return strings.HasPrefix(name, "If-")
}
