package selfupdate

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/metal-stack/selfreconcile/checksum"
)

// Options are the arguments of [Apply].
type Options struct {
	Target  string          // as in [Config]
	Digest  checksum.Digest // what the bytes must be; required
	Version string          // for the record and for people
	Size    int64           // in bytes when known, else 0: checked, and used to find a full disk early

	MaxSize           int64 // as in [Config]
	AllowCreate       bool
	AllowAnyFormat    bool
	AllowOtherProgram bool
	Log               *slog.Logger
}

// Apply replaces the program at opts.Target by what r yields, which must have
// opts.Digest. It is [Updater.Apply] for bytes from anywhere, on the same files
// and with the same promises; r is not read when the target has that digest
// already. A Read that blocks is not interrupted by ctx.
func Apply(ctx context.Context, r io.Reader, opts Options) (Result, error) {
	if r == nil {
		return Result{}, errors.New("no reader")
	}
	if opts.Size < 0 {
		return Result{}, errors.New("a negative Size")
	}
	u, err := New(Config{
		Target: opts.Target, Trust: Pinned(opts.Digest), MaxSize: opts.MaxSize, AllowCreate: opts.AllowCreate,
		AllowAnyFormat: opts.AllowAnyFormat, AllowOtherProgram: opts.AllowOtherProgram, Log: opts.Log,
	})
	if err != nil {
		return Result{}, err
	}
	size := opts.Size
	if size == 0 {
		size = -1
	}
	asset := Asset{Name: filepath.Base(u.Target()), Size: size, Open: func(context.Context, Position) (Body, error) {
		return Body{ReadCloser: io.NopCloser(r), Size: size}, nil
	}}
	return u.Apply(ctx, Release{Version: opts.Version, Assets: []Asset{asset}})
}
