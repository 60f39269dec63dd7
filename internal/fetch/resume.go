package fetch

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// errAgain marks a resume that broke before it reached the offset.
type errAgain struct{ error }

func (e errAgain) Unwrap() error { return e.error }

// resume continues on a new connection. It returns nil when reading goes on at
// b.off, io.EOF when nothing was left, else the final error.
func (b *body) resume(cause error) error {
	for {
		if err := b.mayResume(cause); err != nil {
			return err
		}
		b.c.opts.Log.DebugContext(b.ctx, "resuming", "url", b.url, "offset", b.off, "cause", cause)
		err := b.timed(b.reconnect)
		var again errAgain
		if !errors.As(err, &again) {
			return err
		}
		cause = again.error
	}
}

func (b *body) reconnect() error {
	cur, _ := b.current()
	_ = cur.Close()
	if err := sleep(b.ctx, b.c.lim.backoff(b.resumes-1)); err != nil {
		return Clean(b.stopped())
	}
	resp, err := b.send()
	if err != nil {
		return err
	}
	if err := b.attach(resp); err != nil {
		_ = resp.Body.Close()
		if err == io.EOF {
			return err
		}
		return at(resp.Request.URL, err)
	}
	return nil
}

// mayResume accounts for a further resume and returns why there is none.
func (b *body) mayResume(cause error) error {
	url := b.url
	if selfupdate.ClassOf(cause) != selfupdate.Temporary || errors.Is(cause, errSlow) || b.ctx.Err() != nil {
		return fmt.Errorf("%s: %w", url, cause)
	}
	if b.validator == "" {
		return &brokenError{fmt.Errorf("%s: %w (after %d bytes; the server names no validator to continue with)", url, cause, b.off)}
	}
	if b.off-b.mark >= b.c.lim.progress {
		b.resumes, b.mark = 0, b.off
	}
	if b.resumes >= b.c.lim.resumes {
		return fmt.Errorf("%s: %w (after %d bytes and %d resumes)", url, cause, b.off, b.resumes)
	}
	if b.breaks >= maxResumes {
		return fmt.Errorf("%s: %w (after %d bytes and %d resumes in all)", url, cause, b.off, b.breaks)
	}
	b.resumes++
	b.breaks++
	return nil
}

// attach appends an answer, if it is the same thing's bytes from b.off on.
func (b *body) attach(resp *http.Response) error {
	changed := &brokenError{fmt.Errorf("%w: it changed while it was read; start again", selfupdate.ErrNetwork)}
	if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		if total := unsatisfied(resp); total == b.off && (b.size < 0 || b.size == total) {
			return io.EOF // it broke at the very end
		}
		return changed
	}
	p, err := partOf(resp, b.off)
	if err != nil {
		return err
	}
	if b.differs(resp.Header) || p.total >= 0 && b.size >= 0 && p.total != b.size {
		return changed
	}
	if err := b.agree(p); err != nil {
		return err
	}
	if p.start == 0 && b.off > 0 {
		if err := b.skip(resp, changed); err != nil {
			return err
		}
	}
	return b.switchTo(resp.Body, p)
}

// skip discards what has been read already of an answer that starts at 0. Only
// an equal strong ETag says that these are the same bytes: a date may not.
func (b *body) skip(resp *http.Response, changed error) error {
	if tag := resp.Header.Get("ETag"); !isStrongETag(tag) || tag != b.validator {
		return changed
	}
	if most := 2*max(b.size, b.off) + freeSkips; b.skipped+b.off > most {
		return fmt.Errorf("%w: the connection breaks and the server always starts from the beginning", selfupdate.ErrNetwork)
	}
	n, err := io.CopyN(io.Discard, resp.Body, b.off)
	b.skipped += n
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return errAgain{fmt.Errorf("%w (again, after %d of %d bytes)", Clean(err), n, b.off)}
	}
	return nil
}

func (b *body) switchTo(cur io.ReadCloser, p part) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	b.cur, b.part = cur, p
	return nil
}
