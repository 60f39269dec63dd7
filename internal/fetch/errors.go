package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// brokenError is a body that ended early and can't be continued: starting again
// from 0 may help.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// Clean returns err with a class and without the URLs, queries and network bytes
// that net/http's error texts quote. Errors of [Client.HTTPClient] go through it.
func Clean(err error) error {
	if err == nil {
		return nil
	}
	for {
		var ue *url.Error
		if !errors.As(err, &ue) {
			break
		}
		err = ue.Err
	}
	if selfupdate.ClassOf(err) != 0 {
		return err
	}
	for _, end := range []error{context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF} {
		if errors.Is(err, end) {
			return fmt.Errorf("%w: %w", selfupdate.ErrNetwork, end)
		}
	}
	if text, class := certificate(err); text != "" {
		return fmt.Errorf("%w: %s", class, text)
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return fmt.Errorf("%w: the server speaks http, not https", selfupdate.ErrResponse)
	}
	text := describe(err)
	if text == badLocation {
		return fmt.Errorf("%w: %s", selfupdate.ErrResponse, text)
	}
	return fmt.Errorf("%w: %s", selfupdate.ErrNetwork, text)
}

// badLocation is net/http's, before it quotes the header.
const badLocation = "failed to parse Location header"

// at adds the address to an error of a request.
func at(u *url.URL, err error) error {
	return &addressed{shown(u), err}
}

// addressed keeps the whole chain: a RateLimitError stays one.
type addressed struct {
	url string
	err error
}

func (e *addressed) Error() string { return e.url + ": " + e.err.Error() }
func (e *addressed) Unwrap() error { return e.err }

func isCertificate(err error) bool {
	text, _ := certificate(err)
	return text != ""
}

// certificate explains an error of certificate verification; "" when err is
// none. crypto/x509's own texts quote names out of the certificate.
func certificate(err error) (string, error) {
	var (
		invalid   x509.CertificateInvalidError
		host      x509.HostnameError
		authority x509.UnknownAuthorityError
		verify    *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		return validity(invalid.Cert, time.Now()), selfupdate.ErrNetwork
	case errors.As(err, &invalid):
		return "the certificate is not acceptable", selfupdate.ErrResponse
	case errors.As(err, &host):
		return "the certificate is for another host", selfupdate.ErrResponse
	case errors.As(err, &authority):
		return "the certificate is signed by an unknown authority", selfupdate.ErrResponse
	case errors.As(err, &verify):
		return "the certificate does not verify", selfupdate.ErrResponse
	}
	return "", nil
}

// validity blames the clock as well: a machine that starts without a battery
// believes that it is 1970 or the day of its image.
func validity(cert *x509.Certificate, now time.Time) string {
	day := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	if now.Before(cert.NotBefore) {
		return fmt.Sprintf("the certificate is not valid before %s and this machine's clock says %s: check the clock",
			day(cert.NotBefore), day(now))
	}
	return fmt.Sprintf("the certificate was valid until %s and this machine's clock says %s: check the clock",
		day(cert.NotAfter), day(now))
}

// describe returns a text for an error of the connection. Only texts that are
// known to hold nothing from the network or the URL are passed on.
func describe(err error) string {
	var (
		op    *net.OpError
		dns   *net.DNSError
		errno syscall.Errno
		slow  interface{ Timeout() bool }
	)
	switch {
	case errors.As(err, &op):
		return opText(op)
	case errors.As(err, &dns):
		return "the host name does not resolve"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &slow) && slow.Timeout():
		return "timeout"
	case errors.Is(err, net.ErrClosed):
		return "the connection was closed"
	case errors.Is(err, io.EOF):
		return "the server closed the connection"
	}
	text, _, _ := strings.Cut(err.Error(), `"`)
	if i := strings.Index(text, "malformed MIME header"); i >= 0 { // followed by the line, in some versions unquoted
		text = text[:i] + "malformed header"
	}
	for _, known := range []string{"malformed HTTP ", "malformed chunked encoding", "net/http: ", "http: ", "http2: ", "stream error: ", "tls: ", badLocation} {
		if strings.HasPrefix(text, known) {
			return clip(printable(strings.TrimRight(text, " :")))
		}
	}
	return fmt.Sprintf("the connection failed (%T)", err)
}

func opText(op *net.OpError) string {
	text := op.Op
	if op.Addr != nil {
		text += " " + op.Addr.String()
	}
	return text + ": " + describe(op.Err)
}
