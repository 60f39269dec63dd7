package fetch

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// retrying puts go-retryablehttp around hc. Its own logger writes URLs with
// their query: it stays off, the gate and the backoff log.
func (c *Client) retrying(hc *http.Client) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient:   hc,
		RetryMax:     c.lim.retries,
		CheckRetry:   c.checkRetry,
		Backoff:      c.wait,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}

// checkRetry says whether another try can help. It never replaces the error:
// what is left at the end is the last answer.
func (c *Client) checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		return retriable(err), nil
	}
	if !retriableStatus(resp.StatusCode) || budgetSpent(resp) {
		return false, nil
	}
	d, ok := retryAfter(resp)
	return !ok || d <= c.lim.maxWait, nil
}

// retriable errors are those of the connection.
func retriable(err error) bool {
	return selfupdate.ClassOf(Clean(err)) != selfupdate.Refused && !isCertificate(err)
}

func retriableStatus(code int) bool {
	switch code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false // temporary, but not within seconds
	}
	return serverError(code)
}

// serverError includes what the registry of statuses does not have, like a
// CDN's 521 and 530 for an origin that is down.
func serverError(code int) bool { return code >= 500 && code <= 599 }

// wait implements retryablehttp.Backoff. checkRetry has seen to it that a
// Retry-After is within the limit.
func (c *Client) wait(_, _ time.Duration, n int, resp *http.Response) time.Duration {
	d := c.lim.backoff(n)
	if resp == nil {
		c.opts.Log.Debug("trying again", "wait", d)
		return d
	}
	if after, ok := retryAfter(resp); ok {
		d = max(min(after, c.lim.maxWait), d)
	}
	c.opts.Log.Debug("trying again", "url", shown(resp.Request.URL), "status", resp.StatusCode, "wait", d)
	return d
}

// apiTransport is HTTPClient's: each hop is retried by itself, the redirects are
// the outer client's.
type apiTransport struct {
	retry *retryablehttp.Client
	plain http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (a *apiTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.send(req)
	if err != nil {
		return nil, Clean(err)
	}
	resp.Request = req
	if err := checkEncoding(resp); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	resp.Body = &cappedBody{ReadCloser: resp.Body, left: maxAPIBody}
	return resp, nil
}

func (a *apiTransport) send(req *http.Request) (*http.Response, error) {
	bare := req.Body == nil || req.Body == http.NoBody
	if req.Method != http.MethodGet && req.Method != http.MethodHead || !bare {
		return a.plain.RoundTrip(req)
	}
	again, err := retryablehttp.FromRequest(req)
	if err != nil {
		return nil, err
	}
	resp, err := a.retry.Do(again)
	if err != nil && resp != nil {
		_ = resp.Body.Close()
	}
	return resp, err
}

// peek reads the first bytes of an answer's body and puts them back.
func peek(resp *http.Response, n int64) []byte {
	head, _ := io.ReadAll(io.LimitReader(resp.Body, n))
	resp.Body = &peeked{io.MultiReader(bytes.NewReader(head), resp.Body), resp.Body}
	return head
}

type peeked struct {
	io.Reader
	io.Closer
}
