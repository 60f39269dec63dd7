package hostile

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// network is every host that there is, by name: with names of its own a test can
// have a subdomain and another port, and certificates for them.
type network struct {
	t      *testing.T
	secure bool // every host speaks TLS, but for plainPort
	memory bool
	serve  func(*exchange)
	greet  func(net.Conn) bool // before TLS and HTTP; true: the connection is done

	authority, stranger *authority
	certificate         func() *tls.Certificate

	mu   sync.Mutex
	seen []request
	wg   sync.WaitGroup
	dial func(context.Context, string) (net.Conn, error)
	stop func()
}

// plainPort is never TLS: where a redirect from https to http leads.
const plainPort = "80"

// request is what a host has seen.
type request struct {
	host string // with port
	path string
	text string // request line and header, as they came
}

func newNetwork(t *testing.T, secure, sockets bool) *network {
	n := &network{t: t, secure: secure, memory: !sockets, stop: func() {}}
	n.authority, n.stranger = newAuthority(t), newAuthority(t)
	n.certificate = func() *tls.Certificate { return n.authority.issue(t, anyHost) }
	n.dial = n.pipe
	if sockets {
		n.listen()
	}
	return n
}

// pipe connects in memory, which a bubble of testing/synctest can watch.
func (n *network) pipe(_ context.Context, addr string) (net.Conn, error) {
	client, server := newPipe()
	n.wg.Go(func() { n.accept(server, addr) })
	return client, nil
}

// listen puts each host on an address of the loopback when it is first dialled.
func (n *network) listen() {
	hosts := map[string]net.Listener{}
	n.dial = func(ctx context.Context, addr string) (net.Conn, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		l := hosts[addr]
		if l == nil {
			ip := "127.0.0.1"
			if foreign(addr) {
				ip = "127.0.0.2"
			}
			var err error
			if l, err = net.Listen("tcp", ip+":0"); err != nil {
				return nil, err
			}
			hosts[addr] = l
			n.wg.Go(func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					n.wg.Go(func() { n.accept(c, addr) })
				}
			})
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	}
	n.stop = func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, l := range hosts {
			_ = l.Close()
		}
	}
}

// transport is what http.DefaultTransport is while a case runs: the sources make
// theirs of it, with all their own limits.
func (n *network) transport() *http.Transport {
	roots := x509.NewCertPool()
	roots.AddCert(n.authority.cert)
	return &http.Transport{
		DialContext:       func(ctx context.Context, _, addr string) (net.Conn, error) { return n.dial(ctx, addr) },
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true,
	}
}

// accept serves one request.
func (n *network) accept(conn net.Conn, addr string) {
	defer func() { _ = conn.Close() }()
	if n.greet != nil && n.greet(conn) {
		return
	}
	if _, port, _ := net.SplitHostPort(addr); n.secure && port != plainPort {
		s := tls.Server(conn, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return n.certificate(), nil
		}})
		defer func() { _ = s.Close() }()
		conn = s
	}
	in := bufio.NewReader(conn)
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	text, err := httputil.DumpRequest(r, false)
	if err != nil {
		return
	}
	n.mu.Lock()
	again := 0
	for _, s := range n.seen {
		if s.host == addr && s.path == r.URL.Path {
			again++
		}
	}
	n.seen = append(n.seen, request{addr, r.URL.Path, string(text)})
	n.mu.Unlock()
	gone := make(chan struct{})
	n.wg.Go(func() {
		_, _ = io.Copy(io.Discard, in) // until the client closes, or we do
		close(gone)
	})
	n.serve(&exchange{Conn: conn, host: addr, r: r, n: again, gone: gone})
}

// requests returns what was seen since the last call.
func (n *network) requests() []request {
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := n.seen
	n.seen = nil
	return seen
}

// authority issues certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, a.template(), a.template(), a.key.Public(), a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return a
}

func (a *authority) template() *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "\x1b[31mMARK\x07\n"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(100 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
}

// anyHost makes a certificate good for all hosts of these tests.
func anyHost(c *x509.Certificate) {
	c.DNSNames = []string{"*.example.com", "*.example.net", "*.releases.example.com", "*.api.example.com"}
}

func (a *authority) issue(t *testing.T, change ...func(*x509.Certificate)) *tls.Certificate {
	c := a.template()
	c.SerialNumber, c.IsCA, c.KeyUsage = big.NewInt(2), false, x509.KeyUsageDigitalSignature
	for _, f := range change {
		f(c)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Error(err) // not in the test's goroutine
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
}
