package fetch

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// What a status means and whether it is tried again.
func TestStatus(t *testing.T) {
	for _, tt := range []struct {
		status int
		want   error
		tries  int
	}{
		{200, nil, 1},
		{204, selfupdate.ErrResponse, 1},
		{300, selfupdate.ErrResponse, 1},
		{304, selfupdate.ErrResponse, 1},
		{400, selfupdate.ErrResponse, 1},
		{401, selfupdate.ErrResponse, 1},
		{403, selfupdate.ErrResponse, 1},
		{404, selfupdate.ErrNotFound, 1},
		{405, selfupdate.ErrResponse, 1},
		{408, selfupdate.ErrNetwork, 4},
		{410, selfupdate.ErrNotFound, 1},
		{416, selfupdate.ErrResponse, 1},
		{418, selfupdate.ErrResponse, 1},
		{425, selfupdate.ErrNetwork, 4},
		{429, selfupdate.ErrLimited, 4},
		{451, selfupdate.ErrResponse, 1},
		{500, selfupdate.ErrNetwork, 4},
		{501, selfupdate.ErrNetwork, 1},
		{502, selfupdate.ErrNetwork, 4},
		{503, selfupdate.ErrNetwork, 4},
		{504, selfupdate.ErrNetwork, 4},
		{505, selfupdate.ErrNetwork, 1},
		{507, selfupdate.ErrNetwork, 4},
		{521, selfupdate.ErrNetwork, 4},
		{530, selfupdate.ErrNetwork, 4},
		{600, selfupdate.ErrResponse, 1},
		{999, selfupdate.ErrResponse, 1},
	} {
		t.Run(strconv.Itoa(tt.status), func(t *testing.T) {
			s, l := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				if tt.status != 204 && tt.status != 304 {
					_, _ = io.WriteString(w, "<!DOCTYPE html>\x1b"+secret)
				}
			})
			_, _, err := get(t, quickClient(), Request{URL: s.URL + "/a?sig=" + secret})
			fails(t, err, tt.want)
			assert.Len(t, l.requests(), tt.tries)
			_, _, err = quickClient().ReadAll(t.Context(), Request{URL: s.URL + "/a?sig=" + secret}, 1000)
			fails(t, err, tt.want)

			before := len(l.requests())
			resp, err := quickClient().HTTPClient().Get(s.URL + "/a?sig=" + secret)
			require.NoError(t, err)
			if tt.status != 204 {
				fails(t, StatusError(resp), tt.want)
			}
			_, err = io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Len(t, l.requests(), before+tt.tries)
		})
	}
}

func TestRetries(t *testing.T) {
	for _, tt := range []struct {
		name    string
		retries int
		want    error
		tries   int
	}{
		{"default", 0, nil, 3},
		{"enough", 2, nil, 3},
		{"too few", 1, selfupdate.ErrNetwork, 2},
		{"none", -1, selfupdate.ErrNetwork, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := 0
			s, l := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				switch n++; n {
				case 1:
					w.WriteHeader(http.StatusBadGateway)
				case 2:
					panic(http.ErrAbortHandler)
				}
				_, _ = io.WriteString(w, "at last")
			})
			c := New(Options{Client: trusting(), AllowHTTP: true, Retries: tt.retries, Backoff: time.Millisecond})
			_, _, err := c.ReadAll(t.Context(), Request{URL: s.URL}, 100)
			fails(t, err, tt.want)
			assert.Len(t, l.requests(), tt.tries)
		})
	}
}

func TestConnectionRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, _, err = get(t, quickClient(), Request{URL: "https://" + l.Addr().String() + "/?" + secret})
	fails(t, err, selfupdate.ErrNetwork)
	assert.Contains(t, err.Error(), "connection refused")
}

// The answers that ask for patience. Times are of the header, in seconds from
// now.
func TestRateLimit(t *testing.T) {
	in := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).Unix(), 10) }
	date := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name   string
		status int
		header map[string]string
		body   string
		reset  time.Duration // 0: none
		tries  int           // 0: no rate limit at all
	}{
		{"403 plain", 403, nil, "no", 0, 0},
		{"403 budget", 403, map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": in(time.Hour)}, "", time.Hour, 1},
		{"403 budget left", 403, map[string]string{"X-RateLimit-Remaining": "7", "X-RateLimit-Reset": in(time.Hour)}, "", 0, 0},
		{"403 budget, no reset", 403, map[string]string{"X-RateLimit-Remaining": "0"}, "", 0, 1},
		{"403 budget, absurd reset", 403, map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "99999999999999"}, "", 0, 1},
		{"403 a day", 403, map[string]string{"Retry-After": "86400"}, "", day, 1},
		{"403 secondary", 403, nil, `{"message":"You have exceeded a Secondary Rate Limit. \u001b"}`, 0, 1},
		{"429 a day", 429, map[string]string{"Retry-After": "86400"}, "", day, 1},
		{"429 a day, as a date", 429, map[string]string{"Retry-After": date(day)}, "", day, 1},
		{"429 budget", 429, map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": in(time.Hour)}, "", time.Hour, 1},
		{"429 secondary", 429, nil, "secondary rate limit", 0, 1},
		{"429 now", 429, map[string]string{"Retry-After": "0"}, "", time.Nanosecond, 4},
		{"429 in the past", 429, map[string]string{"Retry-After": date(-day)}, "", time.Nanosecond, 4},
		{"429 nonsense", 429, map[string]string{"Retry-After": "soon " + secret}, "", 0, 4},
		{"503 a day", 503, map[string]string{"Retry-After": "86400"}, "", day, 1},
		{"503 for ever", 503, map[string]string{"Retry-After": "9223372036854775807"}, "", 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noLeak(t)
			s, l := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range tt.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body+secret)
			})
			_, _, err := get(t, quickClient(), Request{URL: s.URL + "/?sig=" + secret})
			assert.Len(t, l.requests(), max(tt.tries, 1))
			var limit *selfupdate.RateLimitError
			if tt.tries == 0 {
				fails(t, err, selfupdate.ErrResponse)
				require.False(t, errors.As(err, &limit))
				return
			}
			fails(t, err, selfupdate.ErrLimited)
			require.ErrorAs(t, err, &limit)
			assert.Equal(t, selfupdate.Temporary, selfupdate.ClassOf(err))
			assert.Equal(t, strings.TrimPrefix(s.URL, "http://"), limit.Host)
			if tt.reset == 0 {
				assert.True(t, limit.Reset.IsZero())
			} else {
				assert.WithinDuration(t, time.Now().Add(tt.reset), limit.Reset, 5*time.Second)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		value string
		ok    bool
		most  time.Duration
	}{
		{"", false, 0},
		{"0", true, 0},
		{"-1", false, 0},
		{"1.5", false, 0},
		{"120", true, 120 * time.Second},
		{" 120 ", true, 120 * time.Second},
		{"99999999999999999999999", true, 365 * 24 * time.Hour}, // seconds, and many
		{"9223372036854775807", true, 365 * 24 * time.Hour},
		{"Sun, 06 Nov 1994 08:49:37 GMT", true, 0},
		{"Sunday, 06-Nov-94 08:49:37 GMT", true, 0},
		{"Fri, 31 Dec 9999 23:59:59 GMT", true, 365 * 24 * time.Hour},
	} {
		d, ok := retryAfter(&http.Response{Header: http.Header{"Retry-After": {tt.value}}})
		assert.Equal(t, tt.ok, ok, tt.value)
		assert.Equal(t, tt.most, d, tt.value)
	}
}

// certificateFor makes a self-signed certificate for 127.0.0.1 and the pool that
// trusts it.
func certificateFor(t *testing.T, from, until time.Time, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: secret}, NotBefore: from, NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{name},
	}
	if name == "" {
		template.DNSNames, template.IPAddresses = nil, []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestCertificate(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name        string
		from, until time.Duration
		host        string
		trusted     bool
		want        error
		text        string
	}{
		{"good", -time.Hour, time.Hour, "", true, nil, ""},
		{"not yet valid", time.Hour, 2 * time.Hour, "", true, selfupdate.ErrNetwork, "this machine's clock"},
		{"expired", -2 * time.Hour, -time.Hour, "", true, selfupdate.ErrNetwork, "this machine's clock"},
		{"unknown authority", -time.Hour, time.Hour, "", false, selfupdate.ErrResponse, "unknown authority"},
		{"of another host", -time.Hour, time.Hour, secret + ".example", true, selfupdate.ErrResponse, "another host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cert, pool := certificateFor(t, now.Add(tt.from), now.Add(tt.until), tt.host)
			if !tt.trusted {
				pool = x509.NewCertPool()
			}
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
			s.Config.ErrorLog = discard()
			s.StartTLS()
			defer s.Close()
			dials := 0
			tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
				DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
					dials++
					return new(net.Dialer).DialContext(ctx, network, addr)
				}}
			_, _, err := get(t, newClient(Options{Client: &http.Client{Transport: tr}}, quick()), Request{URL: s.URL + "/?" + secret})
			if tt.want != nil {
				assert.ErrorContains(t, err, tt.text)
			}
			fails(t, err, tt.want)
			assert.Equal(t, 1, dials)
		})
	}
}

func TestSchemeMismatch(t *testing.T) {
	s, _ := serve(t, func(http.ResponseWriter, *http.Request) {})
	_, _, err := get(t, quickClient(), Request{URL: strings.Replace(s.URL, "http", "https", 1)})
	fails(t, err, selfupdate.ErrResponse)
}
