package selfupdate

import (
	"context"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/metal-stack/selfreconcile/checksum"
)

const (
	separator  = os.PathSeparator
	bufferSize = 512 << 10
	writeEvery = 8 << 20 // bytes after which the kernel is told to start writing
)

func euid() int { return os.Geteuid() }

// staged is a file in the slots directory that is not a slot yet.
type staged struct {
	path   string
	size   int64
	sha256 checksum.Digest
	sha512 checksum.Digest // only when it was asked for

	published checksum.Digest // the publisher's, when that is another: of an archive, or SHA-512
}

// is reports whether the file has digest d.
func (s staged) is(d checksum.Digest) bool { return s.sha256.Equal(d) || s.sha512.Equal(d) }

// content is what is to be staged.
type content struct {
	io.Reader
	size     int64 // as announced; -1 when it wasn't
	max      int64
	want     []checksum.Digest              // every one must hold
	meta     func() (metadata, error)       // of the file to be, as late as possible: somebody may change it meanwhile
	check    func(f file, size int64) error // of the whole file, before its metadata; may be nil
	progress func(done, total int64)
}

// stage writes c to a new file beside the slots, hashing while it writes, and
// returns once it is verified and on the disk. After an error nothing is left.
func (t *target) stage(ctx context.Context, c content) (s staged, err error) {
	s.path = t.download()
	f, err := t.sys.create(s.path)
	if err != nil {
		return s, failed("stage", s.path, err)
	}
	open := true
	defer func() {
		if open {
			_ = f.Close() // it is thrown away
		}
		if err != nil {
			err = join(err, t.sys.remove(s.path))
		}
	}()
	if c.size > 0 {
		if err := f.reserve(c.size); err != nil {
			return s, failed("stage", s.path, err)
		}
	}
	if err := s.fill(ctx, f, c); err != nil {
		return s, err
	}
	if c.check != nil {
		if err := c.check(f, s.size); err != nil {
			return s, err
		}
	}
	m, err := c.meta()
	if err == nil {
		err = m.apply(f)
	}
	if err != nil {
		return s, failed("stage", s.path, err)
	}
	if err := f.Sync(); err != nil {
		return s, failed("stage", s.path, err)
	}
	open = false
	// Closed before anybody executes or links it: an open writer means ETXTBSY.
	return s, failed("stage", s.path, f.Close())
}

// fill copies and verifies.
func (s *staged) fill(ctx context.Context, f file, c content) error {
	h256, h512 := checksum.SHA256.New(), hash.Hash(nil)
	for _, d := range c.want {
		if d.Algorithm() == checksum.SHA512 {
			h512 = checksum.SHA512.New()
		}
	}
	w := &stageWriter{ctx: ctx, f: f, h256: h256, h512: h512, content: c}
	n, err := copyBuffer(w, c.Reader)
	s.size = n
	switch {
	case w.err != nil: // ours, not the reader's
		return w.err
	case err != nil:
		return failed("download", "", networkError(ctx, err))
	case c.size >= 0 && n != c.size:
		return failed("download", "", fmt.Errorf("%w: %d bytes came, %d were announced", ErrSize, n, c.size))
	}
	s.sha256 = checksum.Of(checksum.SHA256, h256)
	if h512 != nil {
		s.sha512 = checksum.Of(checksum.SHA512, h512)
	}
	for _, d := range c.want {
		if !s.is(d) {
			return failed("verify", "", fmt.Errorf("%w: got %v, want %v", ErrDigestMismatch, s.digest(d.Algorithm()), d))
		}
	}
	return nil
}

func (s staged) digest(a checksum.Algorithm) checksum.Digest {
	if a == checksum.SHA512 {
		return s.sha512
	}
	return s.sha256
}

// networkError gives a reader's error a class: it came from a source.
func networkError(ctx context.Context, err error) error {
	if ClassOf(err) != 0 || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNetwork, err)
}

// stageWriter hashes and writes, within the limits.
type stageWriter struct {
	ctx        context.Context
	f          file
	h256, h512 hash.Hash
	content
	n, flushed int64
	err        error
}

func (w *stageWriter) Write(p []byte) (int, error) {
	switch n := w.n + int64(len(p)); {
	case w.ctx.Err() != nil:
		w.err = failed("download", "", w.ctx.Err())
	case n > w.max:
		w.err = failed("download", "", fmt.Errorf("%w: more than %d bytes", ErrTooLarge, w.max))
	case w.size >= 0 && n > w.size:
		w.err = failed("download", "", fmt.Errorf("%w: more than the %d bytes announced", ErrSize, w.size))
	}
	if w.err != nil {
		return 0, w.err
	}
	_, _ = w.h256.Write(p) // a hash never fails
	if w.h512 != nil {
		_, _ = w.h512.Write(p)
	}
	n, err := w.f.Write(p)
	w.n += int64(n)
	if err != nil {
		w.err = failed("stage", w.f.Name(), err)
		return n, w.err
	}
	if w.n-w.flushed >= writeEvery {
		w.f.writeOut(w.flushed, w.n-w.flushed)
		w.flushed = w.n
	}
	if w.progress != nil {
		w.progress(w.n, w.size)
	}
	return n, nil
}

// copyBuffer copies in pieces of bufferSize, whatever shortcuts the two ends offer.
func copyBuffer(w io.Writer, r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, &lively{r: r}, make([]byte, bufferSize))
}

// lively ends a reader that never gets on, on which io.Copy would spin.
type lively struct {
	r     io.Reader
	idles int
}

func (l *lively) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if n > 0 || err != nil {
		l.idles = 0
		return n, err
	}
	if l.idles++; l.idles > 100 {
		return 0, io.ErrNoProgress
	}
	return 0, nil
}

// readLimited reads at most n bytes.
func readLimited(r io.Reader, n int64) ([]byte, error) {
	return io.ReadAll(io.LimitReader(&lively{r: r}, n))
}

// readAsset reads a small asset whole.
func readAsset(ctx context.Context, a Asset, limit int64, authenticated bool) ([]byte, error) {
	if err := ready(a); err != nil {
		return nil, err
	}
	if a.Size > limit {
		return nil, fmt.Errorf("%w: %d bytes, at most %d allowed", ErrTooLarge, a.Size, limit)
	}
	b, err := a.Open(ctx, Position{Authenticated: authenticated})
	if err != nil {
		return nil, networkError(ctx, err)
	}
	if b.ReadCloser == nil {
		return nil, fmt.Errorf("%w: the source opened nothing", ErrResponse)
	}
	defer func() { _ = b.Close() }()
	if b.Start != 0 {
		return nil, fmt.Errorf("%w: it starts at byte %d", ErrResponse, b.Start)
	}
	data, err := readLimited(b, limit+1)
	if err != nil {
		return nil, networkError(ctx, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	return data, nil
}

func ready(a Asset) error {
	switch {
	case a.NotReady:
		return fmt.Errorf("%w: the upload of %q is not complete", ErrNotFound, a.Name)
	case a.Open == nil:
		return fmt.Errorf("%w: the source can't open %q", ErrNotFound, a.Name)
	}
	return nil
}
