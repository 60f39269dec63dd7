// Package archive takes one program out of a release's archive: .tar.gz, .tgz,
// .tar.zst, .zip, and a program that is merely compressed, .gz or .zst. It implements
// [selfupdate.Unpacker]:
//
//	u, err := selfupdate.New(selfupdate.Config{Unpack: archive.Unpacker{}, …})
//
// The core has verified the archive before a byte of it is read here, and writes
// what comes out of it under its own rules: mode and owner are never taken from an
// archive, and nothing is written by a name that stands in one. Still nothing here
// trusts the content. Memory is bounded, whatever stands in the archive, and what is not
// one regular file of that name is refused.
//
// The kind of an archive is told by its first bytes, not by its name. Not accepted:
// xz, bzip2, 7z, a tar file that is not compressed; zstd with a window over 32 MiB (zstd
// --ultra -21, --long=26 and more) or a dictionary; zip64, split and encrypted zip files, and
// zip files with something before or behind; sparse files in tar.
package archive

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// DefaultMaxUnpacked is how much an archive may hold in all, in bytes.
const DefaultMaxUnpacked = 2 << 30

const (
	maxWindow = 32 << 20 // of zstd, which keeps that much in memory
	buffer    = 64 << 10
)

// Unpacker is a [selfupdate.Unpacker]. The zero value takes the file that has the
// program's name ([selfupdate.Config.Name], also with .exe), in whatever directory
// of the archive, if there is exactly one.
type Unpacker struct {
	// Entry is the file to take, exactly: a path in the archive, or a name without a
	// slash, which may be in any directory. A leading "./" makes no difference. Ignored
	// for a file that is merely compressed.
	Entry string

	// MaxUnpacked is how many bytes may come out of the archive, all that is skipped
	// included; 0 is DefaultMaxUnpacked. The program itself has the limit of
	// [selfupdate.Config.MaxSize].
	MaxUnpacked int64
}

// String returns Entry, by which the core tells two programs of one archive apart.
func (u Unpacker) String() string { return u.Entry }

// Unpack implements [selfupdate.Unpacker]. Errors of the content match
// [selfupdate.ErrFormat] or [selfupdate.ErrTooLarge]. The end of the file is only
// reported once the rest of the archive was read, so that a second file of that name
// or a wrong checksum is seen.
func (u Unpacker) Unpack(ctx context.Context, archive io.ReaderAt, size int64, name string) (io.ReadCloser, error) {
	if u.MaxUnpacked < 0 {
		return nil, errors.New("a negative MaxUnpacked")
	}
	if u.MaxUnpacked == 0 {
		u.MaxUnpacked = DefaultMaxUnpacked
	}
	w := wanted{name: clean(name)}
	if u.Entry != "" {
		w = wanted{name: clean(u.Entry), exactly: true}
	}
	archive = disk{archive}
	var magic [4]byte
	if _, err := archive.ReadAt(magic[:], 0); errors.Is(err, io.EOF) {
		return nil, refuse("%d bytes are none", size)
	} else if err != nil {
		return nil, err
	}
	raw := bufio.NewReaderSize(&stopping{ctx, io.NewSectionReader(archive, 0, size)}, buffer)
	switch {
	case magic[0] == 0x1f && magic[1] == 0x8b:
		z, err := gzip.NewReader(raw)
		if err != nil {
			return nil, classed(err)
		}
		return u.stream(z, z.Close, w)
	case string(magic[:]) == "\x28\xb5\x2f\xfd":
		z, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, classed(err)
		}
		return u.stream(z, func() error { z.Close(); return nil }, w)
	case string(magic[:]) == "PK\x03\x04" || string(magic[:]) == "PK\x05\x06":
		return u.zip(ctx, archive, size, w)
	}
	return nil, refuse("neither gzip nor zstd nor zip")
}

// stream is for what is one compressed stream: of a tar file, or of the program itself.
func (u Unpacker) stream(z io.Reader, stop func() error, w wanted) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(&limited{r: z, left: u.MaxUnpacked}, buffer)
	var r io.Reader = &checked{r: b}
	head, err := b.Peek(512)
	switch {
	case isTar(head):
		r, err = openTar(b, w)
	case err == io.EOF: // shorter than that
		err = nil
	default:
		err = classed(err)
	}
	if err != nil {
		_ = stop() // which has no better error
		return nil, err
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

// stopping stops with the context.
type stopping struct {
	ctx context.Context
	r   io.Reader
}

func (s *stopping) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}

// limited fails once more than left bytes came.
type limited struct {
	r    io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, fmt.Errorf("%w: more comes out of the archive than is allowed", selfupdate.ErrTooLarge)
	}
	return n, err
}

// disk tells an archive that can't be read from one that is wrong.
type disk struct{ io.ReaderAt }

func (d disk) ReadAt(p []byte, off int64) (int, error) {
	n, err := d.ReaderAt.ReadAt(p, off)
	if err != nil && err != io.EOF {
		err = &diskError{err}
	}
	return n, err
}

type diskError struct{ err error }

func (e *diskError) Error() string           { return "archive: " + e.err.Error() }
func (e *diskError) Unwrap() error           { return e.err }
func (e *diskError) Class() selfupdate.Class { return selfupdate.Local }

// wanted tells the entry that is wanted.
type wanted struct {
	name    string
	exactly bool // not with .exe
}

func (w wanted) is(name string) bool {
	name = clean(name)
	if !strings.Contains(w.name, "/") {
		name = path.Base(name)
	}
	return name == w.name || !w.exactly && name == w.name+".exe"
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

// clean is what an extractor makes of a name: bin//app is bin/app once more.
func clean(name string) string { return path.Clean(name) }

// quote makes a name that may be a megabyte of anything fit for an error.
func quote(name string) string {
	const most = 80
	q := strconv.QuoteToASCII(name[:min(len(name), most)])
	if len(name) > most {
		q += "..."
	}
	return q
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: archive: "+format, append([]any{selfupdate.ErrFormat}, args...)...)
}

func notThere(w wanted) error {
	return refuse("there is no file %s in it", quote(w.name))
}

func notRegular(name string) error { return refuse("%s is no regular file", quote(name)) }

func pointsOut(name string) error { return refuse("the name %s points out of it", quote(name)) }

func twice(first, second string) error {
	return refuse("two files of that name, %s and %s: say which is meant by its path (Entry)", quote(first), quote(second))
}

// classed makes an error of a decompressor one of this module.
func classed(err error) error {
	if err == nil || selfupdate.ClassOf(err) != 0 || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return refuse("%w", err)
}
