package fetch

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// defaultTransport is http.DefaultTransport with this package's limits.
func defaultTransport(lim limits) *http.Transport {
	t, ok := http.DefaultTransport.(*http.Transport)
	if ok {
		t = t.Clone()
	} else { // the program has replaced it by something of its own
		dial := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
		t = &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dial.DialContext, ForceAttemptHTTP2: true}
	}
	t.TLSHandshakeTimeout = lim.tls
	t.ResponseHeaderTimeout = lim.header
	t.MaxResponseHeaderBytes = 256 << 10
	t.DisableCompression = true
	t.ReadBufferSize = readBuffer
	// Idle connections are goroutines that outlive the call: long enough for the
	// checksum file and its asset, no longer.
	t.IdleConnTimeout = 10 * time.Second
	// Without pings a dead HTTP/2 connection stays in the pool, and every resume
	// would be sent into it.
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second}
	// net/http's own error is the proxy's reason phrase: bytes from the network.
	t.OnProxyConnectResponse = proxyAnswer
	return t
}

func proxyAnswer(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
		return nil
	case code >= 500 || code == http.StatusTooManyRequests:
		return fmt.Errorf("%w: the proxy answers status %d", selfupdate.ErrNetwork, code)
	default:
		return fmt.Errorf("%w: the proxy answers status %d", selfupdate.ErrResponse, code)
	}
}
