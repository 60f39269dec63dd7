package fetch

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// errSlow is never resumed: another connection would be as slow, and its bytes
// would count as progress.
var errSlow = fmt.Errorf("%w: too slow", selfupdate.ErrNetwork)

// watch ends a hop that does not move, by cancelling its context: this works
// with any transport and costs a timer, not a goroutine.
type watch struct {
	lim    limits
	cancel context.CancelFunc
	timer  *time.Timer
	inBody atomic.Bool
	fired  atomic.Pointer[error]

	// Of the body, read by one goroutine.
	waited time.Duration
	bytes  int64
}

// newWatch starts the wait for the header.
func newWatch(parent context.Context, lim limits) (*watch, context.Context) {
	ctx, cancel := context.WithCancel(parent)
	w := &watch{lim: lim, cancel: cancel}
	w.timer = time.AfterFunc(lim.answer, w.fire)
	return w, ctx
}

func (w *watch) fire() {
	err := fmt.Errorf("%w: no answer for %s", selfupdate.ErrNetwork, w.lim.answer)
	if w.inBody.Load() {
		err = fmt.Errorf("%w: no byte for %s", selfupdate.ErrNetwork, w.lim.stall)
	}
	w.fired.CompareAndSwap(nil, &err)
	w.cancel()
}

// pause stops the time and returns the error when it had run out.
func (w *watch) pause() error {
	w.timer.Stop()
	if err := w.fired.Load(); err != nil {
		return *err
	}
	return nil
}

func (w *watch) end() {
	w.timer.Stop()
	w.cancel()
}

// count adds a read to the rate and returns an error when it is too low. Only
// the time spent waiting counts: a slow disk is not a slow server.
func (w *watch) count(n int, d time.Duration) error {
	w.waited += d
	w.bytes += int64(n)
	if w.waited < w.lim.grace {
		return nil
	}
	if w.lim.minRate > 0 && float64(w.bytes) < float64(w.lim.minRate)*w.waited.Seconds() {
		return fmt.Errorf("%w: less than %d bytes a second", errSlow, w.lim.minRate)
	}
	w.waited, w.bytes = 0, 0
	return nil
}

// watchedBody watches each read of a body.
type watchedBody struct {
	io.ReadCloser
	w      *watch
	closed sync.Once
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	if err := b.w.pause(); err != nil {
		return 0, err
	}
	b.w.inBody.Store(true)
	start := time.Now()
	b.w.timer.Reset(b.w.lim.stall)
	n, err := b.ReadCloser.Read(p)
	fired := b.w.pause()
	if err != nil && err != io.EOF && fired != nil {
		return n, fired
	}
	if err == nil {
		err = b.w.count(n, time.Since(start))
	}
	return n, err
}

// Close implements io.Closer.
func (b *watchedBody) Close() error {
	var err error
	b.closed.Do(func() {
		// Cancelled first, so that closing never waits for the rest of the body.
		b.w.end()
		err = b.ReadCloser.Close()
	})
	return err
}
