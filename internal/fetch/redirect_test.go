package fetch

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

func TestRedirects(t *testing.T) {
	plain, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "plain") })
	s, _ := serveTLS(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/n/"))
		to := r.URL.Query().Get("to")
		switch {
		case err == nil && n > 0:
			to = fmt.Sprintf("/n/%d?sig="+secret, n-1)
		case to == "":
			_, _ = io.WriteString(w, "there")
			return
		case to == "nowhere":
			w.WriteHeader(http.StatusFound)
			return
		}
		w.Header()["Location"] = []string{to}
		w.WriteHeader(http.StatusFound)
	})
	for _, tt := range []struct {
		name, path string
		want       error
	}{
		{"none", "/", nil},
		{"five", "/n/5", nil},
		{"six", "/n/6", selfupdate.ErrResponse},
		{"loop", "/?to=" + url.QueryEscape("/?to="+url.QueryEscape("?sig="+secret)), nil},
		{"to http", "/?to=" + url.QueryEscape(plain.URL+"/?sig="+secret), selfupdate.ErrInsecure},
		{"to file", "/?to=" + url.QueryEscape("file:///etc/passwd?"+secret), selfupdate.ErrInsecure},
		{"to ftp", "/?to=" + url.QueryEscape("ftp://user:"+secret+"@127.0.0.1/"), selfupdate.ErrInsecure},
		{"to javascript", "/?to=" + url.QueryEscape("javascript:"+secret), selfupdate.ErrInsecure},
		{"to nothing", "/?to=nowhere", selfupdate.ErrResponse},
		{"to garbage", "/?to=" + url.QueryEscape("https://[::1/"+secret), selfupdate.ErrResponse},
		{"to a bad port", "/?to=" + url.QueryEscape("https://127.0.0.1:1x/"+secret), selfupdate.ErrResponse},
	} {
		for _, allowHTTP := range []bool{false, true} { // https to http is never allowed
			t.Run(fmt.Sprint(tt.name, allowHTTP), func(t *testing.T) {
				c := newClient(Options{Client: trusting(s), AllowHTTP: allowHTTP}, quick())
				_, _, err := get(t, c, Request{URL: s.URL + tt.path, Authenticated: true})
				fails(t, err, tt.want)
				resp, err := c.HTTPClient().Get(s.URL + tt.path)
				if tt.name == "to nothing" {
					require.NoError(t, err)
					err = StatusError(resp)
				}
				fails(t, Clean(err), tt.want)
				if resp != nil {
					assert.NoError(t, resp.Body.Close())
				}
			})
		}
	}
}

func TestRedirectURL(t *testing.T) {
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/from" {
			http.Redirect(w, r, "/to%2Fthere?sig="+secret, http.StatusFound)
		}
	})
	_, b, err := get(t, quickClient(), Request{URL: s.URL + "/from?sig=" + secret})
	require.NoError(t, err)
	assert.Equal(t, s.URL+"/to%2Fthere", b.URL)
}

func TestRedirectLoop(t *testing.T) {
	s, l := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/?sig="+secret, http.StatusFound)
	})
	_, _, err := get(t, quickClient(), Request{URL: s.URL})
	fails(t, err, selfupdate.ErrResponse)
	assert.Len(t, l.requests(), 6) // and no retry
}

func TestScheme(t *testing.T) {
	s, l := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") })
	for _, tt := range []struct {
		name string
		url  string
		opts Options
		req  Request
		want error
	}{
		{"http", s.URL, Options{}, Request{}, selfupdate.ErrInsecure},
		{"http, allowed", s.URL, Options{AllowHTTP: true}, Request{}, nil},
		{"http, authenticated", s.URL, Options{}, Request{Authenticated: true}, nil},
		{"http, authenticated, token", s.URL, Options{}, Request{Authenticated: true, Credential: token()}, selfupdate.ErrInsecure},
		{"http, allowed, token", s.URL, Options{AllowHTTP: true}, Request{Credential: token()}, nil},
		{"file", "file:///etc/passwd?" + secret, Options{AllowHTTP: true}, Request{}, selfupdate.ErrInsecure},
		{"ftp", "ftp://127.0.0.1/" + secret, Options{AllowHTTP: true}, Request{}, selfupdate.ErrInsecure},
		{"none", "127.0.0.1/?" + secret, Options{AllowHTTP: true}, Request{}, selfupdate.ErrResponse},
		{"broken", "https://127.0.0.1/%zz?" + secret, Options{AllowHTTP: true}, Request{}, selfupdate.ErrResponse},
		{"empty", "", Options{AllowHTTP: true}, Request{}, selfupdate.ErrResponse},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(l.requests())
			tt.opts.Client = trusting()
			tt.req.URL = tt.url
			_, _, err := get(t, newClient(tt.opts, quick()), tt.req)
			fails(t, err, tt.want)
			if tt.want != nil {
				assert.Len(t, l.requests(), before)
			}
		})
	}
	_, err := New(Options{}).HTTPClient().Get(s.URL + "?sig=" + secret)
	fails(t, Clean(err), selfupdate.ErrInsecure)
	_, _, err = get(t, New(Options{}), Request{URL: s.URL, Authenticated: true})
	require.NoError(t, err)
}

func token() http.Header {
	return http.Header{"Authorization": {"Bearer " + secret}, "Private-Token": {secret}}
}

// secrets returns what of a request's headers only the first host may see.
func secrets(r *http.Request) (found []string) {
	for name, values := range r.Header {
		if strings.Contains(strings.Join(values, " "), secret) {
			found = append(found, name)
		}
	}
	return found
}

// Header says on which hops the credentials of the first URL are sent.
func TestCredential(t *testing.T) {
	end := func(w http.ResponseWriter, r *http.Request) {
		if back := r.URL.Query().Get("back"); back != "" {
			http.Redirect(w, r, back, http.StatusFound)
			return
		}
		if r.Header.Get("Authorization") != "" {
			http.Error(w, "Only one auth mechanism allowed", http.StatusBadRequest) // as S3 does
			return
		}
		_, _ = io.WriteString(w, "asset")
	}
	port, portLog := serve(t, end)
	host, hostLog := serveOn(t, "127.0.0.2", end)
	var home *httptest.Server
	home, homeLog := serve(t, func(w http.ResponseWriter, r *http.Request) {
		to := map[string]string{
			"/same":  "/end",
			"/port":  port.URL + "/?sig=x",
			"/host":  host.URL + "/?sig=x",
			"/round": host.URL + "/?back=" + url.QueryEscape(home.URL+"/end"),
			"/user":  strings.Replace(host.URL, "//", "//me:"+secret+"@", 1) + "/",
		}[r.URL.Path]
		if to != "" {
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		} else {
			_, _ = io.WriteString(w, "asset")
		}
	})
	for _, tt := range []struct {
		path     string
		homeLast bool // whether the last hop at home has the credentials
	}{
		{"/end", true}, {"/same", true}, {"/port", true}, {"/host", true}, {"/round", false}, {"/user", true},
	} {
		for _, how := range []string{"Credential", "Header", "URL", "HTTPClient"} {
			t.Run(tt.path+how, func(t *testing.T) {
				from := [3]int{len(homeLog.requests()), len(portLog.requests()), len(hostLog.requests())}
				read(t, home.URL+tt.path+"?sig="+secret, how)
				mine := homeLog.requests()[from[0]:]
				assert.NotEmpty(t, secrets(mine[0]))
				assert.Equal(t, tt.homeLast, len(secrets(mine[len(mine)-1])) > 0)
				for _, r := range mine {
					assert.Empty(t, r.Header.Get("Referer"))
				}
				for _, r := range append(portLog.requests()[from[1]:], hostLog.requests()[from[2]:]...) {
					assert.Empty(t, secrets(r))
					assert.Empty(t, r.Header.Get("Authorization"))
					assert.Empty(t, r.Header.Get("Referer"))
					assert.Equal(t, "identity", r.Header.Get("Accept-Encoding"))
					if how != "URL" {
						assert.Equal(t, "application/octet-stream", r.Header.Get("Accept"))
					}
				}
			})
		}
	}
}

// read reads address with credentials given in one way.
func read(t *testing.T, address, how string) {
	t.Helper()
	c := quickClient()
	header := http.Header{"Accept": {"application/octet-stream"}}
	req := Request{URL: address, Header: header}
	switch how {
	case "Credential":
		req.Credential = token()
	case "Header":
		for k, v := range token() {
			header[k] = v
		}
	case "URL":
		// Sent as Basic, so that the secret is not readable on the wire: use it as is.
		req.URL = strings.Replace(address, "//", "//me:"+secret+"@", 1)
		req.Header = nil
		req.Credential = http.Header{"Private-Token": {secret}}
	case "HTTPClient":
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		require.NoError(t, err)
		r.Header = token()
		r.Header.Set("Accept", "application/octet-stream")
		resp, err := c.HTTPClient().Do(r)
		require.NoError(t, err)
		data, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "asset", string(data))
		return
	}
	data, _, err := get(t, c, req)
	require.NoError(t, err)
	require.Equal(t, "asset", string(data))
}

// A retry starts at home again, with the credentials.
func TestCredentialAgain(t *testing.T) {
	n := 0
	away, _ := serveOn(t, "127.0.0.2", func(w http.ResponseWriter, r *http.Request) {
		assert.Empty(t, secrets(r))
		if n++; n < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	home, l := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, away.URL, http.StatusFound) })
	_, _, err := get(t, quickClient(), Request{URL: home.URL, Credential: token()})
	require.NoError(t, err)
	require.Len(t, l.requests(), 3)
	for _, r := range l.requests() {
		assert.Len(t, secrets(r), 2)
	}
}

func TestCredentialInURL(t *testing.T) {
	s, l := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	_, _, err := get(t, quickClient(), Request{URL: strings.Replace(s.URL, "//", "//me:"+secret+"@", 1)})
	fails(t, err, selfupdate.ErrResponse)
	user, pass, ok := l.requests()[0].BasicAuth()
	assert.True(t, ok)
	assert.Equal(t, "me", user)
	assert.Equal(t, secret, pass)
}

// serveOn is serve on another loopback address, which stands for another host.
func serveOn(t *testing.T, host string, h http.HandlerFunc) (*httptest.Server, *log) {
	t.Helper()
	ln, err := net.Listen("tcp", host+":0")
	require.NoError(t, err)
	l := &log{}
	s := httptest.NewUnstartedServer(l.wrap(h))
	require.NoError(t, s.Listener.Close())
	s.Listener = ln
	s.Start()
	t.Cleanup(s.Close)
	return s, l
}
