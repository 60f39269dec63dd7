package fetch

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// The transport as it is without a caller's client, but for the certificate.
func TestHTTP2(t *testing.T) {
	noLeak(t)
	data := pattern(200_000)
	l := &log{}
	s := httptest.NewUnstartedServer(l.wrap(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/flaky":
			flaky(data, `"v1"`, 70_000)(w, r)
		case "/broken":
			flaky(data, "", 70_000)(w, r)
		case "/short": // ends cleanly, without a length
			_, _ = w.Write(data[:10])
			flush(w)
		case "/stall":
			w.Header().Set("ETag", `"v1"`)
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			if r.Header.Get("Range") != "" {
				flaky(data, `"v1"`, 1<<30)(w, r)
				return
			}
			_, _ = w.Write(data[:10])
			flush(w)
			<-r.Context().Done()
		}
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = discard()
	s.StartTLS()
	t.Cleanup(s.Close)

	lim := quick()
	lim.stall = 200 * time.Millisecond
	tr := defaultTransport(lim)
	tr.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	tr.TLSClientConfig.NextProtos = nil
	t.Cleanup(tr.CloseIdleConnections)
	c := newClient(Options{Client: &http.Client{Transport: tr}}, lim)
	for _, tt := range []struct {
		path string
		size int64
		want error
	}{
		{"/flaky", -1, nil},
		{"/stall", -1, nil},
		{"/broken", -1, selfupdate.ErrNetwork},
		{"/short", 10, nil},
		{"/short", 11, selfupdate.ErrSize},
	} {
		t.Run(fmt.Sprint(tt.path, tt.size), func(t *testing.T) {
			got, _, err := get(t, c, Request{URL: s.URL + tt.path + "?sig=" + secret, Size: tt.size})
			fails(t, err, tt.want)
			if tt.want == nil && tt.path != "/short" {
				assert.Equal(t, data, got)
			}
		})
	}
	for _, r := range l.requests() {
		require.Equal(t, 2, r.ProtoMajor)
	}
}
