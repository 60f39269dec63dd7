// Package archive takes one program out of a release's archive: .tar.gz, .tgz,
// .tar.zst, .zip, and a program that is merely compressed, .gz or .zst. It implements
// [selfupdate.Unpacker]:
//
//	u, err := selfupdate.New(selfupdate.Config{Unpack: archive.Unpacker{}, …})
//
// The core has verified the archive before a byte of it is read here, and writes
// what comes out of it under its own rules: mode and owner are never taken from an
// archive, and nothing is written by a name that stands in one. Still nothing here
// trusts the content: memory is bounded (about 40 MiB for zstd, 1 MiB else), and what
// is not one regular file of that name is refused.
package archive

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// DefaultMaxUnpacked is how much an archive may hold in all, in bytes.
const DefaultMaxUnpacked = 2 << 30

const (
	maxWindow = 32 << 20 // of zstd: what zstd -19 and --ultra -22 --long=25 need
	buffer    = 64 << 10
)

// Unpacker is a [selfupdate.Unpacker]. The zero value takes the file that has the
// program's name ([selfupdate.Config.Name], also with .exe), in whatever directory
// of the archive, if there is exactly one.
type Unpacker struct {
	// Entry is the file to take: a path in the archive, or a name without a slash,
	// which may be in any directory. A leading "./" makes no difference. Ignored for a
	// file that is merely compressed.
	Entry string

	// MaxUnpacked is how many bytes may come out of the archive, all that is skipped
	// included; 0 is DefaultMaxUnpacked.
	MaxUnpacked int64
}

// Unpack implements [selfupdate.Unpacker]. Errors match [selfupdate.ErrFormat] or
// [selfupdate.ErrTooLarge]. The end of the file is only reported once the rest of the
// archive was read, so that a second file of that name or a wrong checksum is seen.
func (u Unpacker) Unpack(ctx context.Context, archive io.ReaderAt, size int64, name string) (io.ReadCloser, error) {
	if u.MaxUnpacked < 0 {
		return nil, errors.New("a negative MaxUnpacked")
	}
	if u.MaxUnpacked == 0 {
		u.MaxUnpacked = DefaultMaxUnpacked
	}
	if u.Entry != "" {
		name = u.Entry
	}
	w := wanted{clean(name)}
	var magic [4]byte
	if n, err := archive.ReadAt(magic[:], 0); n < len(magic) {
		return nil, refuse("%d bytes are no archive (%v)", n, err)
	}
	raw := &limited{ctx: ctx, r: bufio.NewReaderSize(io.NewSectionReader(archive, 0, size), buffer), left: size + 1}
	switch {
	case magic[0] == 0x1f && magic[1] == 0x8b:
		z, err := gzip.NewReader(raw)
		if err != nil {
			return nil, refuse("gzip: %w", err)
		}
		return u.stream(ctx, z, z.Close, w)
	case string(magic[:]) == "\x28\xb5\x2f\xfd":
		z, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, refuse("zstd: %w", err)
		}
		return u.stream(ctx, z, func() error { z.Close(); return nil }, w)
	case string(magic[:]) == "PK\x03\x04" || string(magic[:]) == "PK\x05\x06":
		return u.zip(ctx, archive, size, w)
	}
	return nil, refuse("neither gzip nor zstd nor zip")
}

// stream is for what is one compressed stream: of a tar file, or of the program itself.
func (u Unpacker) stream(ctx context.Context, z io.Reader, stop func() error, w wanted) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(&limited{ctx: ctx, r: z, left: u.MaxUnpacked}, buffer)
	var r io.Reader = &checked{r: b}
	head, err := b.Peek(512)
	switch {
	case isTar(head):
		if r, err = openTar(b, w); err != nil {
			return nil, errors.Join(err, stop())
		}
	case err != nil && !errors.Is(err, io.EOF):
		return nil, errors.Join(classed(err), stop())
	}
	return &entry{r, stop}, nil
}

type entry struct {
	io.Reader
	stop func() error
}

func (e *entry) Close() error { return e.stop() }

// checked gives the errors of a decompressor their class.
type checked struct{ r io.Reader }

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err != nil && err != io.EOF {
		err = classed(err)
	}
	return n, err
}

// limited reads at most left bytes, and stops with the context.
type limited struct {
	ctx  context.Context
	r    io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	if l.left <= 0 {
		return 0, fmt.Errorf("%w: more comes out of the archive than is allowed", selfupdate.ErrTooLarge)
	}
	if int64(len(p)) > l.left {
		p = p[:l.left]
	}
	n, err := l.r.Read(p)
	l.left -= int64(n)
	return n, err
}

// wanted tells the entry that is wanted.
type wanted struct{ name string }

func (w wanted) is(name string) bool {
	name = clean(name)
	if !strings.Contains(w.name, "/") {
		name = path.Base(name)
	}
	return name == w.name || name == w.name+".exe"
}

// unsafe reports whether a name points out of the archive.
func unsafe(name string) bool {
	name = strings.ReplaceAll(name, `\`, "/")
	if strings.HasPrefix(name, "/") || len(name) > 1 && name[1] == ':' || strings.ContainsRune(name, 0) {
		return true
	}
	for _, part := range strings.Split(name, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}

func clean(name string) string {
	for strings.HasPrefix(name, "./") {
		name = strings.TrimLeft(name[2:], "/")
	}
	return name
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{selfupdate.ErrFormat}, args...)...)
}

// classed makes an error of a decompressor one of this module.
func classed(err error) error {
	if selfupdate.ClassOf(err) != 0 || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return refuse("%w", err)
}
