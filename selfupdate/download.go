package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/metal-stack/selfreconcile/checksum"
)

// open starts the download and settles its size.
func (u *Updater) open(ctx context.Context, a Asset) (Body, int64, error) {
	b, err := a.Open(ctx, Position{Authenticated: u.cfg.Trust.authenticated()})
	if err != nil {
		return Body{}, 0, failed("download", a.URL, networkError(ctx, err))
	}
	if b.ReadCloser == nil {
		return Body{}, 0, failed("download", a.URL, fmt.Errorf("%w: the source opened nothing", ErrResponse))
	}
	size := b.Size
	if size < 0 {
		size = a.Size
	}
	switch {
	case b.Start != 0:
		err = fmt.Errorf("%w: it starts at byte %d", ErrResponse, b.Start)
	case a.Size >= 0 && size != a.Size:
		err = fmt.Errorf("%w: the source says %d bytes, the server %d", ErrSize, a.Size, size)
	case size > u.cfg.MaxSize:
		err = fmt.Errorf("%w: %d bytes, at most %d allowed", ErrTooLarge, size, u.cfg.MaxSize)
	default:
		err = u.target.checkSpace(size)
	}
	if err != nil {
		return Body{}, 0, join(failed("download", a.URL, err), b.Close())
	}
	return b, size, nil
}

// obtain stages the wanted program: downloaded, or from a slot.
func (u *Updater) obtain(ctx context.Context, rel Release, d decision) (staged, error) {
	if d.have != nil {
		s, err := u.restage(ctx, *d.have)
		if err == nil && !s.sha256.Equal(d.want) {
			s.published = d.want
		}
		return s, err
	}
	b, size, err := u.open(ctx, d.asset)
	if err != nil {
		return staged{}, err
	}
	c := content{Reader: b, size: size, max: u.cfg.MaxSize, want: []checksum.Digest{d.want}, progress: u.cfg.Progress}
	if !d.asset.Sum.IsZero() {
		c.want = append(c.want, d.asset.Sum)
	}
	if u.cfg.Unpack == nil {
		c.meta, c.check = u.metadata, u.checker(rel.Version)
	} else {
		c.meta = func() (metadata, error) { return metadata{mode: 0o600, uid: -1, gid: -1}, nil }
	}
	s, err := u.target.stage(ctx, c)
	if cerr := b.Close(); err == nil && cerr != nil {
		u.target.log.Debug("the connection did not close well", "error", cerr) // every byte is verified
	}
	if err != nil {
		return staged{}, located(err, b.URL, d.asset.URL)
	}
	if u.cfg.Unpack != nil {
		if s, err = u.unpack(ctx, rel, s); err != nil {
			return staged{}, err
		}
	}
	if !s.sha256.Equal(d.want) {
		s.published = d.want
	}
	return s, u.probe(ctx, s)
}

// located adds the URL, after redirects, to an error about the bytes from there.
func located(err error, urls ...string) error {
	var e *Error
	for _, url := range urls {
		if errors.As(err, &e) && e.Path == "" {
			e.Path = url
		}
	}
	return err
}

func (u *Updater) metadata() (metadata, error) {
	m, err := u.target.sys.metadata(u.target.target)
	if errors.Is(err, fs.ErrNotExist) {
		return firstInstall, nil
	}
	return m, failed("read owner and mode", u.target.target, err)
}

// restage copies a good program from its slot, so that it gets today's owner and
// mode without a change to the slot.
func (u *Updater) restage(ctx context.Context, e entry) (staged, error) {
	f, err := u.target.sys.open(u.target.slot(e.SHA256))
	if err != nil {
		return staged{}, failed("read slot", u.target.slot(e.SHA256), err)
	}
	defer func() { _ = f.Close() }()
	return u.target.stage(ctx, content{Reader: f, size: e.Size, max: e.Size, want: []checksum.Digest{e.SHA256}, meta: u.metadata})
}

// unpack replaces the staged, verified archive by the program in it.
func (u *Updater) unpack(ctx context.Context, rel Release, archive staged) (s staged, err error) {
	defer func() {
		if rerr := u.target.sys.remove(archive.path); rerr != nil && err == nil {
			err = join(failed("unpack", archive.path, rerr), u.target.sys.remove(s.path))
		}
	}()
	f, err := u.target.sys.open(archive.path)
	if err != nil {
		return s, failed("unpack", archive.path, err)
	}
	defer func() { _ = f.Close() }()
	r, err := u.cfg.Unpack.Unpack(ctx, f, archive.size, u.cfg.Name)
	if err != nil {
		if ClassOf(err) == 0 {
			err = fmt.Errorf("%w: %w", ErrFormat, err)
		}
		return s, failed("unpack", "", err)
	}
	if r == nil {
		return s, failed("unpack", "", fmt.Errorf("%w: the unpacker found nothing", ErrFormat))
	}
	defer func() { _ = r.Close() }()
	return u.target.stage(ctx, content{Reader: unpacked{ctx, r}, size: -1, max: u.cfg.MaxSize, meta: u.metadata, check: u.checker(rel.Version)})
}

// unpacked gives an unpacker's errors their class and step: nothing of it is the network's.
type unpacked struct {
	ctx context.Context
	r   io.Reader
}

func (u unpacked) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if err == nil || err == io.EOF {
		return n, err
	}
	if ClassOf(err) == 0 && u.ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return n, failed("unpack", "", err)
}

// checker returns the check of the whole staged file, after its digest.
func (u *Updater) checker(version string) func(file, int64) error {
	return func(f file, size int64) error {
		if !u.cfg.AllowAnyFormat {
			if err := checkFormat(f, size, Host(), u.target.sys.stat); err != nil {
				return failed("check format", "", err)
			}
		}
		if tr := u.cfg.Trial; tr != nil && !tr.Outside && !u.outside() {
			if err := checkConfirms(f, u.target.oldProgram()); err != nil {
				return failed("check build information", "", err)
			}
		}
		if !u.cfg.AllowOtherProgram {
			if err := checkProgram(f, u.target.oldProgram(), version); err != nil {
				return failed("check build information", "", err)
			}
		}
		return nil
	}
}

func (u *Updater) probe(ctx context.Context, s staged) error {
	if u.cfg.Probe == nil {
		return nil
	}
	before, err := u.target.sys.lstat(s.path)
	if err == nil {
		err = u.cfg.Probe(ctx, s.path)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && !u.untouched(s, before) {
		err = errors.New("the probe changed the program")
	}
	switch c := ClassOf(err); {
	case err == nil:
		return nil
	case c == Temporary || c == Local || ctx.Err() != nil: // nothing that the program can help
		err = failed("probe", s.path, err)
	default:
		err = failed("probe", s.path, fmt.Errorf("%w: %w", ErrProbe, err))
	}
	return join(err, u.target.sys.remove(s.path))
}

// untouched reports whether the staged file is what was verified.
func (u *Updater) untouched(s staged, before fs.FileInfo) bool {
	after, err := u.target.sys.lstat(s.path)
	if err != nil || !after.Mode().IsRegular() || *stampOf(after) != *stampOf(before) || after.Mode() != before.Mode() {
		return false
	}
	got, err := u.target.hash(s.path, checksum.SHA256)
	return err == nil && got.Equal(s.sha256)
}
