package selfupdate

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// DefaultMaxSize is the largest download unless [Config.MaxSize] says otherwise.
const DefaultMaxSize = 512 << 20 // bytes

// Config configures an [Updater]. Only Trust has no default.
type Config struct {
	// Target is the path of the program to replace; "" is the own executable. It
	// is resolved once, by New: a symbolic link stays, the file behind it is replaced.
	Target string

	// Current is the version that the program at Target says of itself, for the
	// record and for people, and for telling an update from a downgrade in a Plan.
	Current string

	// Trust says why the bytes of a release may run here. Required.
	Trust Trust

	// Asset is the name of the release's asset, a template with {name} {version}
	// {os} {arch} {arm} {ext}, matched exactly. "" takes the only asset that the
	// release lists, else the one that [MatchAsset] finds for this machine.
	Asset string

	// Name is what {name} stands for; "" is the base name of Target, without .exe.
	Name string

	// Sums names the checksum file, a template like Asset; "" is the usual order
	// (see [Release.Sums]).
	Sums string

	MaxSize int64 // of a download, in bytes; 0 is DefaultMaxSize

	AllowCreate       bool // Target need not exist: a first install, which nothing can roll back
	AllowAnyFormat    bool // also what this machine can't execute by its header
	AllowOtherProgram bool // also what was built from another Go module, or as another release

	// Refresh asks for the checksum file even when version and URL are those that
	// the target was installed from: sees a moved "latest".
	// It also tries again at once what is held back since it was refused before.
	Refresh bool

	// Refuse, when not nil, is asked before anything else with the resolved target;
	// its error becomes [ErrManaged]. [ManagedBy] helps to recognise a package
	// manager's files.
	Refuse func(target string) error

	// Unpack takes the program out of the asset, after the asset was verified;
	// nil: the asset is the program.
	Unpack Unpacker

	// Probe, when not nil, is called with the path of the verified, executable,
	// closed file before the swap; an error stops the update as [ErrProbe], and unless
	// it is Temporary or Local that digest is remembered as rejected. See [RunProbe].
	Probe func(ctx context.Context, path string) error

	// Trial puts what Apply installs on trial: it has to confirm itself, or the program
	// before comes back. nil, for programs that somebody watches: no trial, and Begin
	// and Confirm are errors.
	Trial *Trial

	// Restart, when Target is another program, makes that one run what is at the
	// target now. It is called after each change, and again by the next Apply until it
	// has returned nil, so it has to mean "make sure that it runs". When it fails for a
	// program that is on trial, that program is left and Restart called again.
	Restart func(ctx context.Context) error

	// Progress, when not nil, is called while a download is written: bytes so far
	// and in all (-1: unknown).
	Progress func(done, total int64)

	Log *slog.Logger // nil is silent
}

// Unpacker takes one program out of an archive.
type Unpacker interface {
	// Unpack returns the program in an archive of size bytes. name is what
	// [Config.Name] says. The reader is closed by the caller. An Unpacker that can take
	// different files out of one archive has a String method that says which: what was
	// installed from that archive, or rejected, is remembered with it.
	Unpack(ctx context.Context, archive io.ReaderAt, size int64, name string) (io.ReadCloser, error)
}

// Updater brings one program to the version that it is told. It is safe for
// concurrent use, also between processes: of two updates at once one gets [ErrBusy].
type Updater struct {
	cfg     Config
	target  *target
	session session
	own     bool        // the target is the running program
	running fs.FileInfo // what this process runs, if own
}

// New checks cfg and resolves the target. It touches nothing on disk.
func New(cfg Config) (*Updater, error) { return newUpdater(cfg, system()) }

func newUpdater(cfg Config, sys ops) (*Updater, error) {
	if err := cfg.Trust.check(); err != nil {
		return nil, err
	}
	if err := cfg.Trial.check(); err != nil {
		return nil, err
	}
	if cfg.MaxSize < 0 {
		return nil, errors.New("a negative MaxSize")
	}
	if cfg.MaxSize == 0 {
		cfg.MaxSize = DefaultMaxSize
	}
	t, err := openTarget(cfg.Target, cfg.Log, sys)
	if err != nil {
		return nil, err
	}
	t.create, t.version = cfg.AllowCreate, cfg.Current
	if cfg.Name == "" {
		cfg.Name = strings.TrimSuffix(filepath.Base(t.target), ".exe")
	}
	return watched(&Updater{cfg: cfg, target: t}), nil
}

// bare returns an Updater without a configuration, for what needs none.
func bare(path string, log *slog.Logger) (*Updater, error) {
	t, err := openTarget(path, log, system())
	if err != nil {
		return nil, err
	}
	return watched(&Updater{cfg: Config{Target: path}, target: t}), nil
}

// watched notes whether the target is the running program, and which file that is.
func watched(u *Updater) *Updater {
	if own, err := ownExecutable(); err == nil {
		u.own = u.cfg.Target == "" || own == u.target.target
	}
	if u.own {
		var err error
		if u.running, err = ownFile(); err != nil {
			u.running, _ = os.Lstat(u.target.target)
		}
	}
	u.target.own, u.target.restarts = u.own, u.cfg.Restart != nil && !u.own
	return u
}

// outside reports whether the target is another program, which this one confirms.
func (u *Updater) outside() bool {
	return !u.own && (u.cfg.Restart != nil || u.cfg.Trial != nil && u.cfg.Trial.Outside)
}

func openTarget(path string, log *slog.Logger, sys ops) (*target, error) {
	l, err := resolve(path)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &target{layout: l, sys: sys, log: log}, nil
}

// Target returns the path that is replaced, without symbolic links. Hooks use
// it rather than os.Executable, which gives another answer after a swap.
func (u *Updater) Target() string { return u.target.target }
