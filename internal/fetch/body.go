package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

var errClosed = errors.New("read after close")

// body is a resource that is read over one connection after the other. Read is
// for one goroutine; Close may come from another.
type body struct {
	c      *Client
	ctx    context.Context
	cancel context.CancelCauseFunc
	trip   *trip

	header    http.Header
	url       string
	validator string
	tag       string // the ETag that an answer stated, if any did
	size      int64  // of the whole; -1 unknown

	mu     sync.Mutex // cur against Close
	cur    io.ReadCloser
	closed bool

	off     int64 // of the next byte
	part    part  // what cur holds
	pending error // came together with bytes
	err     error // final

	resumes int   // since mark
	mark    int64 // off when resumes was reset
	breaks  int   // all resumes
	skipped int64 // bytes that came again
	pace    pace
}

// open sends the first request. With [ErrNotModified] the body has a header
// only.
func (c *Client) open(parent context.Context, req Request) (*body, error) {
	t, err := c.newTrip(req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(parent)
	b := &body{c: c, ctx: ctx, cancel: cancel, trip: t, size: req.Size, pace: c.lim.newPace()}
	if b.size <= 0 {
		b.size = -1
	}
	if req.Offset > 0 && usable(req.Validator) {
		b.off, b.validator = req.Offset, req.Validator
	}
	if err := b.start(); err != nil {
		cancel(nil)
		return b, err
	}
	return b, nil
}

func (b *body) start() error {
	resp, err := b.send()
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && b.off > 0 {
		_ = resp.Body.Close()
		if total := unsatisfied(resp); total == b.off && (b.size < 0 || b.size == total) {
			return b.complete(resp, total) // the earlier read had it all
		}
		b.off, b.validator = 0, "" // it is not what it was: from the start
		if resp, err = b.send(); err != nil {
			return err
		}
	}
	if err := b.accept(resp); err != nil {
		_ = resp.Body.Close()
		return at(resp.Request.URL, err)
	}
	return nil
}

func (b *body) complete(resp *http.Response, total int64) error {
	b.size, b.cur, b.err = total, http.NoBody, io.EOF
	b.header, b.url = resp.Header, shown(resp.Request.URL)
	return nil
}

// accept takes the first answer.
func (b *body) accept(resp *http.Response) error {
	p, err := partOf(resp, b.off)
	if err != nil {
		return err
	}
	if err := b.agree(p); err != nil {
		return err
	}
	if p.start > 0 && b.differs(resp.Header) {
		return fmt.Errorf("%w: a part of something else than before", selfupdate.ErrResponse)
	}
	if p.start == 0 {
		b.validator, b.tag = validatorOf(resp.Header), resp.Header.Get("ETag")
	}
	b.off, b.mark, b.part = p.start, p.start, p
	b.header, b.url = resp.Header, shown(resp.Request.URL)
	b.cur = resp.Body
	return nil
}

// agree compares the size that an answer states with the one that is known, or
// learns it.
func (b *body) agree(p part) error {
	switch {
	case p.total >= 0 && b.size >= 0 && p.total != b.size:
		return fmt.Errorf("%w: %d instead of %d bytes", selfupdate.ErrSize, p.total, b.size)
	case p.total < 0 && b.size < 0 && p.end >= 0:
		return fmt.Errorf("%w: a part of an unknown whole", selfupdate.ErrResponse)
	case b.size < 0:
		b.size = p.total
	}
	return nil
}

// send asks for the bytes from b.off on. An error status is an error, except
// 416 to a range.
func (b *body) send() (*http.Response, error) {
	b.trip.from(b.off, b.validator)
	req, err := retryablehttp.NewRequestWithContext(context.WithValue(b.ctx, tripKey{}, b.trip), http.MethodGet, b.trip.url.String(), nil)
	if err != nil {
		return nil, at(b.trip.url, Clean(err))
	}
	resp, err := b.c.follow.Do(req)
	if b.ctx.Err() != nil {
		err = b.stopped()
	}
	if err != nil {
		if resp != nil {
			_ = resp.Body.Close()
		}
		return nil, at(b.trip.url, Clean(err))
	}
	if err := b.check(resp); err != nil {
		_ = resp.Body.Close()
		return nil, at(resp.Request.URL, err)
	}
	return resp, nil
}

func (b *body) check(resp *http.Response) error {
	switch {
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && b.off > 0:
		return nil
	case resp.StatusCode == http.StatusNotModified && b.trip.conditional():
		b.header = resp.Header
		return ErrNotModified
	}
	if err := StatusError(resp); err != nil {
		return err
	}
	return checkEncoding(resp)
}

// Read implements io.Reader. It returns io.EOF only when all bytes have come.
func (b *body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if b.err != nil {
			return 0, b.err
		}
		cur, closed := b.current()
		if closed {
			return 0, errClosed
		}
		n, err := 0, b.pending
		if err == nil {
			n, err = b.count(b.read(cur, p))
		}
		b.pending = nil
		if n > 0 {
			b.pending = err
			return n, nil
		}
		if err != nil {
			b.err = b.next(err)
		}
	}
}

func (b *body) current() (io.ReadCloser, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cur, b.closed
}

// read reads from a connection and accounts for the time.
func (b *body) read(cur io.Reader, p []byte) (int, error) {
	start := time.Now()
	n, err := cur.Read(p)
	if slow := b.pace.spend(time.Since(start), n); slow != nil && err != io.EOF {
		err = slow
	}
	return n, err
}

// count advances the offset and cuts what is beyond the size.
func (b *body) count(n int, err error) (int, error) {
	b.off += int64(n)
	if b.size < 0 || b.off <= b.size {
		return n, err
	}
	over := int(b.off - b.size)
	b.off = b.size
	return n - over, fmt.Errorf("%w: more than %d bytes", selfupdate.ErrSize, b.size)
}

// next says how to go on after the end of a connection: nil to read on, else the
// final error.
func (b *body) next(err error) error {
	if err == io.EOF {
		switch {
		case b.size < 0 || b.off == b.size:
			return io.EOF
		case b.part.whole:
			return fmt.Errorf("%s: %w: %d instead of %d bytes", b.url, selfupdate.ErrSize, b.off, b.size)
		}
		err = io.ErrUnexpectedEOF
	}
	if b.ctx.Err() != nil {
		if _, closed := b.current(); closed {
			return errClosed
		}
		err = b.stopped()
	}
	return b.resume(Clean(err))
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	b.cancel(nil)
	// What closing a response body reports is of no use: every byte that counts
	// has been read, and the digest has the last word.
	_ = b.cur.Close()
	return nil
}
