package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/metal-stack/selfreconcile/checksum"
)

// DefaultMaxSize is the largest download unless [Config.MaxSize] says otherwise.
const DefaultMaxSize = 512 << 20 // bytes

// Config configures an [Updater]. Only Trust has no default.
type Config struct {
	// Target is the path of the program to replace; "" is the own executable. It
	// is resolved once, by New: a symbolic link stays, the file behind it is replaced.
	Target string

	// Current is the version that the program at Target says of itself, for the
	// record and for people. No decision depends on it.
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
	Refresh bool

	// Refuse, when not nil, is asked before anything else with the resolved target;
	// its error becomes [ErrManaged]. [ManagedBy] helps to recognise a package
	// manager's files.
	Refuse func(target string) error

	// Unpack takes the program out of the asset, after the asset was verified;
	// nil: the asset is the program.
	Unpack Unpacker

	// Probe, when not nil, is called with the path of the verified, executable,
	// closed file before the swap; an error stops the update as [ErrProbe].
	Probe func(ctx context.Context, path string) error

	// Progress, when not nil, is called while a download is written: bytes so far
	// and in all (-1: unknown).
	Progress func(done, total int64)

	Log *slog.Logger // nil is silent
}

// Unpacker takes one program out of an archive.
type Unpacker interface {
	// Unpack returns the program in an archive of size bytes. name is what
	// [Config.Name] says. The reader is closed by the caller.
	Unpack(ctx context.Context, archive io.ReaderAt, size int64, name string) (io.ReadCloser, error)
}

// Updater brings one program to the version that it is told. It is safe for
// concurrent use, also between processes: of two updates at once one gets [ErrBusy].
type Updater struct {
	cfg     Config
	target  *target
	own     bool        // the target is the running program
	running fs.FileInfo // what this process runs, if own
}

// New checks cfg and resolves the target. It touches nothing on disk.
func New(cfg Config) (*Updater, error) { return newUpdater(cfg, system()) }

func newUpdater(cfg Config, sys ops) (*Updater, error) {
	if err := cfg.Trust.check(); err != nil {
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
	u := &Updater{cfg: cfg, target: t}
	if own, err := ownExecutable(); err == nil {
		u.own = cfg.Target == "" || own == t.target
	}
	if u.own {
		if u.running, err = ownFile(); err != nil {
			u.running, _ = os.Lstat(t.target)
		}
	}
	return u, nil
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

// Outcome is what [Updater.Apply] or [Updater.Rollback] did.
type Outcome string

// The outcomes.
const (
	UpToDate   Outcome = "up to date"
	Updated    Outcome = "updated"
	RolledBack Outcome = "rolled back"
)

// Result says what is at the target now.
type Result struct {
	Outcome  Outcome         `json:"outcome"`
	Version  string          `json:"version"`
	Previous string          `json:"previous,omitempty"` // the version before it; "" when unknown or the same
	SHA256   checksum.Digest `json:"sha256"`             // of the program at the target
	Policy   string          `json:"policy,omitempty"`   // the trust that held, in words
	URL      string          `json:"url,omitempty"`      // where it came from
	Size     int64           `json:"size"`               // in bytes

	// RestartNeeded says that the running process is the target's program, but not
	// the file that is there now. Exit, or exec the target, to run that.
	RestartNeeded bool `json:"restart_needed"`
}

// Apply brings the target to the release. It is idempotent: when the target is
// that release already the outcome is [UpToDate], without any request if version
// and URL are those recorded. Versions are opaque: an older one is as good.
//
// Nothing changes at the target's path before the new file is downloaded,
// verified and on the disk; then one rename does (two on Windows). After an error
// nothing staged remains and the target is unchanged, except where [Error.State]
// says otherwise. The program that was there is kept for [Updater.Rollback].
//
// Errors have a class: see [ClassOf]. Apply never exits, restarts or prints;
// after [Updated] it is the caller's turn. A failed Apply is no reason to stop,
// unless [Result.RestartNeeded] says so, which holds beside an error too: somebody
// may have rolled the running program back.
func (u *Updater) Apply(ctx context.Context, rel Release) (Result, error) {
	res, err := u.apply(ctx, rel)
	res.RestartNeeded = u.stale()
	return res, err
}

func (u *Updater) apply(ctx context.Context, rel Release) (Result, error) {
	if err := u.admit(rel); err != nil {
		return Result{}, err
	}
	if r, ok := u.unchanged(rel); ok {
		return u.result(UpToDate, r, ""), nil
	}
	t := u.target
	asset, err := u.preflight(rel)
	if err != nil {
		return Result{}, err
	}
	release, err := t.acquire()
	if err != nil {
		return Result{}, err
	}
	defer release()
	r, err := t.settle(ctx)
	if err != nil {
		return Result{}, err
	}
	d, err := u.decide(ctx, rel, asset, r)
	if err != nil {
		return Result{}, err
	}
	switch d.action {
	case NothingToDo:
		return u.note(ctx, rel, d)
	case IsRejected:
		return Result{}, failed("install", d.asset.URL, fmt.Errorf("%w: %s", ErrRejected, d.reason))
	}
	s, err := u.obtain(ctx, rel, d)
	if err != nil {
		return Result{}, err
	}
	e := entry{Version: rel.Version, URL: clip(d.asset.URL, maxURL), Policy: clip(d.policy, 256)}
	if !s.sha256.Equal(d.want) {
		e.Published = d.want
	}
	if err := t.install(ctx, s, e, r); err != nil {
		return Result{}, err
	}
	before := ""
	if r.Current != nil {
		before = r.Current.Version
	}
	e.SHA256, e.Size = s.sha256, s.size
	t.log.Debug("updated", "path", t.target, "version", rel.Version, "sha256", e.SHA256.Hex())
	return u.result(Updated, e, before), nil
}

// admit checks the arguments and asks the caller's policy.
func (u *Updater) admit(rel Release) error {
	if len(rel.Version) > maxVersion || strings.ContainsFunc(rel.Version, isControl) {
		return fmt.Errorf("a version has at most %d bytes and no control characters", maxVersion)
	}
	if u.cfg.Refuse != nil {
		if err := u.cfg.Refuse(u.target.target); err != nil {
			return failed("check policy", u.target.target, fmt.Errorf("%w: %w", ErrManaged, err))
		}
	}
	return nil
}

func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\ufffd' }

// unchanged reports, without lock, write or request, whether the target is what
// this very release installed.
func (u *Updater) unchanged(rel Release) (entry, bool) {
	r, err := u.target.read()
	if err != nil || r.Phase != phaseStable || r.Current == nil {
		return entry{}, false
	}
	asset, err := u.choose(rel)
	return *r.Current, err == nil && u.recorded(rel, asset, r)
}

func (u *Updater) recorded(rel Release, asset Asset, r record) bool {
	pinned := u.cfg.Trust.pinned
	c := r.Current
	if c == nil || !u.target.holds(c) || !pinned.IsZero() && !c.is(pinned) {
		return false
	}
	if !pinned.IsZero() && c.Version == rel.Version {
		return true
	}
	return !u.cfg.Refresh && rel.Version != "" && asset.URL != "" && c.Version == rel.Version && c.URL == clip(asset.URL, maxURL)
}

// Action is what [Updater.Apply] would do.
type Action string

// The actions of a [Plan].
const (
	NothingToDo Action = "up to date"
	Update      Action = "update"
	Downgrade   Action = "downgrade" // an update to a lower release tag vX.Y.Z: as good as any
	IsRejected  Action = "rejected"
)

// Plan is what [Updater.Apply] would do now.
type Plan struct {
	Action  Action          `json:"action"`
	Reason  string          `json:"reason,omitempty"`
	Version string          `json:"version"`           // asked for
	Current string          `json:"current,omitempty"` // at the target
	Asset   string          `json:"asset,omitempty"`
	URL     string          `json:"url,omitempty"`
	Want    checksum.Digest `json:"want,omitzero"` // the digest that the asset must have
	Policy  string          `json:"policy,omitempty"`
	Size    int64           `json:"size"` // of the download in bytes; -1 when unknown, 0 when there is none
}

// Plan is a dry run of Apply: it checks directory and space (for which it makes
// and removes an empty file), fetches the checksum file, and asks whether the
// asset's URL answers, without reading it. Nothing is recorded.
func (u *Updater) Plan(ctx context.Context, rel Release) (Plan, error) {
	if err := u.admit(rel); err != nil {
		return Plan{}, err
	}
	asset, err := u.preflight(rel)
	if err != nil {
		return Plan{}, err
	}
	r, err := u.target.view()
	if err != nil {
		return Plan{}, err
	}
	d, err := u.decide(ctx, rel, asset, r)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Action: d.action, Reason: d.reason, Version: rel.Version, Asset: d.asset.Name, URL: d.asset.URL, Want: d.want, Policy: d.policy}
	if r.Current != nil {
		p.Current = r.Current.Version
	}
	if p.Action != Update || d.have != nil {
		return p, nil
	}
	if older(rel.Version, p.Current) {
		p.Action = Downgrade
	}
	b, size, err := u.open(ctx, d.asset)
	if err != nil {
		return Plan{}, err
	}
	p.Size = size
	return p, failed("download", d.asset.URL, b.Close())
}

// decision is what decide found out.
type decision struct {
	action Action
	reason string
	asset  Asset
	want   checksum.Digest // zero when the record alone was enough
	policy string
	have   *entry // a good program on disk that is the wanted one
}

// preflight finds out without a request what would make the update fail later.
func (u *Updater) preflight(rel Release) (Asset, error) {
	asset, err := u.choose(rel)
	if err == nil {
		err = u.target.check()
	}
	if err == nil {
		err = u.target.checkSpace(asset.Size)
	}
	return asset, err
}

// decide finds the digest that is wanted and compares that with what is here.
func (u *Updater) decide(ctx context.Context, rel Release, asset Asset, r record) (decision, error) {
	d := decision{asset: asset, action: NothingToDo}
	if u.recorded(rel, asset, r) {
		d.reason = "version and URL are those that the target was installed from"
		return d, nil
	}
	sums, err := u.expand(u.cfg.Sums, rel.Version)
	if err != nil {
		return decision{}, err
	}
	if d.want, d.policy, err = u.cfg.Trust.wanted(ctx, rel, asset, sums); err != nil {
		return decision{}, err
	}
	if asset.Sum.Algorithm() == d.want.Algorithm() && !asset.Sum.Equal(d.want) {
		return decision{}, failed("verify", asset.URL, fmt.Errorf("%w: the source says %v, wanted is %v", ErrDigestMismatch, asset.Sum, d.want))
	}
	there, err := u.there(d.want, r)
	if err != nil {
		return decision{}, err
	}
	if there {
		d.reason = "the target has the wanted digest"
		return d, nil
	}
	if j := r.rejection(d.want); j != nil {
		d.action, d.reason = IsRejected, j.text()
		return d, nil
	}
	d.action = Update
	for _, e := range r.Good {
		if e.is(d.want) && u.target.intact(e.SHA256) {
			d.have, d.reason = &e, "the wanted program is still on disk"
		}
	}
	return d, nil
}

func (j rejection) text() string {
	s := j.SHA256.String()
	if j.Version != "" {
		s += " (version " + j.Version + ")"
	}
	if j.Reason != "" {
		s += ", " + j.Reason
	}
	return s
}

// there reports whether the target has digest d, the publisher's perhaps.
func (u *Updater) there(d checksum.Digest, r record) (bool, error) {
	switch {
	case r.Current == nil:
		return false, nil
	case r.Current.is(d):
		return u.target.holds(r.Current), nil
	case r.rejection(d) != nil || d.Algorithm() == checksum.SHA256 || r.Current.Published.Algorithm() == d.Algorithm():
		return false, nil
	}
	got, err := u.target.hash(u.target.target, d.Algorithm())
	return got.Equal(d), err
}

// choose returns the asset of the release for this machine.
func (u *Updater) choose(rel Release) (Asset, error) {
	name, err := u.expand(u.cfg.Asset, rel.Version)
	if err != nil {
		return Asset{}, err
	}
	if name == "" && len(rel.Assets) == 1 {
		name = rel.Assets[0].Name
	}
	if name == "" {
		names := make([]string, len(rel.Assets))
		for i, a := range rel.Assets {
			names[i] = a.Name
		}
		if len(names) == 0 {
			return Asset{}, failed("choose asset", "", fmt.Errorf("%w: the release lists none, so its name must be given", ErrAsset))
		}
		if name, err = MatchAsset(names, u.cfg.Name, Host()); err != nil {
			return Asset{}, failed("choose asset", "", err)
		}
	}
	a, err := rel.Asset(name)
	if err == nil {
		err = ready(a)
	}
	return a, failed("choose asset", a.URL, err)
}

func (u *Updater) expand(template, version string) (string, error) {
	if template == "" {
		return "", nil
	}
	name, err := ExpandAsset(template, u.cfg.Name, version, Host())
	return name, failed("choose asset", "", err)
}

// open starts the download and settles its size.
func (u *Updater) open(ctx context.Context, a Asset) (Body, int64, error) {
	b, err := a.Open(ctx, Position{Authenticated: u.cfg.Trust.authenticated()})
	if err != nil {
		return Body{}, 0, failed("download", a.URL, networkError(ctx, err))
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
		return Body{}, 0, errors.Join(failed("download", a.URL, err), b.Close())
	}
	return b, size, nil
}

// obtain stages the wanted program: downloaded, or from a slot.
func (u *Updater) obtain(ctx context.Context, rel Release, d decision) (staged, error) {
	meta, err := u.metadata()
	if err != nil {
		return staged{}, err
	}
	if d.have != nil {
		return u.restage(ctx, *d.have, meta)
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
		c.meta, c.check = meta, u.checker(rel.Version)
	} else {
		c.meta = metadata{mode: 0o600, uid: -1, gid: -1}
	}
	s, err := u.target.stage(ctx, c)
	if cerr := b.Close(); err == nil && cerr != nil {
		u.target.log.Debug("the connection did not close well", "error", cerr) // every byte is verified
	}
	if err != nil {
		return staged{}, located(err, b.URL, d.asset.URL)
	}
	if u.cfg.Unpack != nil {
		if s, err = u.unpack(ctx, rel, s, meta); err != nil {
			return staged{}, err
		}
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
func (u *Updater) restage(ctx context.Context, e entry, meta metadata) (staged, error) {
	f, err := u.target.sys.open(u.target.slot(e.SHA256))
	if err != nil {
		return staged{}, failed("read slot", u.target.slot(e.SHA256), err)
	}
	defer func() { _ = f.Close() }()
	return u.target.stage(ctx, content{Reader: f, size: e.Size, max: e.Size, want: []checksum.Digest{e.SHA256}, meta: meta})
}

// unpack replaces the staged, verified archive by the program in it.
func (u *Updater) unpack(ctx context.Context, rel Release, archive staged, meta metadata) (s staged, err error) {
	defer func() {
		if rerr := u.target.sys.remove(archive.path); rerr != nil && err == nil {
			err = errors.Join(failed("unpack", archive.path, rerr), u.target.sys.remove(s.path))
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
	defer func() { _ = r.Close() }()
	return u.target.stage(ctx, content{Reader: r, size: -1, max: u.cfg.MaxSize, meta: meta, check: u.checker(rel.Version)})
}

// checker returns the check of the whole staged file, after its digest.
func (u *Updater) checker(version string) func(file, int64) error {
	return func(f file, size int64) error {
		if !u.cfg.AllowAnyFormat {
			if err := checkFormat(f, size, Host(), u.target.sys.stat); err != nil {
				return failed("check format", "", err)
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
	if err := u.cfg.Probe(ctx, s.path); err != nil {
		err = failed("probe", s.path, fmt.Errorf("%w: %w", ErrProbe, err))
		return errors.Join(err, u.target.sys.remove(s.path))
	}
	return nil
}

// note records which release the target is, so that next time no request is needed.
func (u *Updater) note(ctx context.Context, rel Release, d decision) (Result, error) {
	var e entry
	err := u.target.update(ctx, func(r *record) error {
		if r.Phase == "" {
			if err := u.target.adopt(r); err != nil {
				return err
			}
		}
		c := r.Current
		if c == nil {
			return nil
		}
		if !d.want.IsZero() {
			c.URL, c.Policy = clip(d.asset.URL, maxURL), clip(d.policy, 256)
			if rel.Version != "" {
				c.Version = rel.Version
			}
			if !c.SHA256.Equal(d.want) {
				c.Published = d.want
			}
		}
		e = *c
		return nil
	})
	if err != nil {
		return Result{}, err
	}
	return u.result(UpToDate, e, ""), nil
}

func (u *Updater) result(o Outcome, e entry, before string) Result {
	res := Result{Outcome: o, Version: e.Version, SHA256: e.SHA256, Policy: e.Policy, URL: e.URL, Size: e.Size}
	if before != e.Version {
		res.Previous = before
	}
	return res
}

// stale reports whether this process runs another file than the target is now.
func (u *Updater) stale() bool {
	if !u.own || u.running == nil {
		return false
	}
	fi, err := u.target.sys.lstat(u.target.target)
	return err == nil && !sameFile(fi, u.running)
}
