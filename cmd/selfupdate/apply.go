package main

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/metal-stack/selfreconcile/archive"
	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/internal/shell"
	"github.com/metal-stack/selfreconcile/selfupdate"
	httpsource "github.com/metal-stack/selfreconcile/source/http"
)

// applyFlags are the arguments of the command.
type applyFlags struct {
	target                  string
	url, sumsURL, version   string
	repository              string // OWNER/REPO
	tag, asset, sums        string
	apiURL, tokenFile       string
	reason                  string
	digest                  checksum.Digest
	keys                    keyFiles
	verifiers               []selfupdate.Verifier // of the keys
	unbound                 bool
	maxSize                 int64
	stall                   time.Duration
	allowHTTP, preReleases  bool
	create, refresh, dryRun bool
	anyFormat, otherProgram bool
	managedAnyway           bool
	unpack                  bool
	entry                   string
	trial, outside          bool
	starts                  int
	deadline                time.Duration
	owner, repo, token      string          // derived
	set                     map[string]bool // the flags that were given
}

func applyCommand(e *env) *command {
	var a applyFlags
	c := &command{
		name: "apply", summary: "install a release in place of the program at a path",
		forms: []string{
			"apply --target PATH --url URL [--sums-url URL] [--version V]\n      (--key FILE… | --digest sha256:HEX | --unsigned-checksum REASON) [flags]",
			"apply --target PATH --github OWNER/REPO [--tag TAG] [--asset NAME] [--sums NAME]\n      (--key FILE… | --digest sha256:HEX | --unsigned-checksum REASON) [flags]",
		},
		about: "Downloads the program, verifies it and puts it at PATH in one step: at every instant PATH is the old program or the " +
			"new one, whole. Mode and owner stay. The old program is kept for \"selfupdate rollback\". When PATH is that release " +
			"already, nothing is done. A running program is not restarted.\n\n" +
			"With --trial the new program must confirm itself after a restart, or the old one comes back: by \"selfupdate-guard\" in " +
			"its unit, and by the program itself as far as it gets.\n\n" +
			"Why the bytes may run here must be said: --key trusts who signed the checksum file, with minisign (its name and .minisig) or " +
			"with an ECDSA key as cosign and openssl do (.sig), for the version that is asked for; --digest names the bytes, and no checksum " +
			"file is fetched; --unsigned-checksum trusts the checksum file that lies beside them.\n\n" +
			"With --github, --tag and --asset and no token, GitHub's API is not asked (it allows 60 requests an hour and address without " +
			"a token), except once when the file is not found, to say what the release has instead. Without --tag the newest " +
			"release is taken, without --asset the one asset for this machine; both ask the API. Assets are looked for under the base " +
			"name of PATH, then under the name of the repository.",
		flags: e.newFlags("apply"),
		order: append(append([]string(nil), applyOrder[:]...), shared[:]...),
		example: "selfupdate apply --target /usr/local/bin/firewall-controller --version v2.5.0 \\\n" +
			"  --url https://images.metal-stack.io/firewall-controller/v2.5.0/firewall-controller \\\n" +
			"  --unsigned-checksum \"nothing is signed yet\"\n" +
			"selfupdate apply --target /usr/local/bin/metalctl --github metal-stack/metalctl --tag v0.18.7 \\\n" +
			"  --asset metalctl-{os}-{arch} --unsigned-checksum \"nothing is signed yet\"",
	}
	a.define(c.flags)
	c.run = func(ctx context.Context, args []string) error {
		if err := noArguments(args); err != nil {
			return err
		}
		a.set = given(c.flags)
		if err := a.check(e); err != nil {
			return err
		}
		return a.run(ctx, e)
	}
	return c
}

var applyOrder = [...]string{
	"What to replace:", "target", "create", "managed-anyway",
	"Which release, by URL:", "url", "sums-url", "version",
	"Which release, from GitHub:", "github", "tag", "pre-releases", "asset", "sums", "api-url", "token-file",
	"When it is an archive:", "unpack", "entry",
	"Why it may run here (exactly one):", "key", "allow-unbound-version", "digest", "unsigned-checksum",
	"On trial:", "trial", "starts", "deadline", "confirmed-outside",
	"How:", "dry-run", "refresh", "max-size", "stall", "allow-http", "allow-any-format", "allow-other-program",
}

func (a *applyFlags) define(fs *flag.FlagSet) {
	fs.StringVar(&a.target, "target", "", "`PATH` of the program to replace; a symbolic link stays, the file behind it is replaced (required)")
	fs.BoolVar(&a.create, "create", false, "PATH may be missing: a first install")
	fs.BoolVar(&a.managedAnyway, "managed-anyway", false, "also replace a file that belongs to a package manager (Homebrew, Nix, snap, …)")

	fs.StringVar(&a.url, "url", "", "`URL` of the program itself, or with --unpack of an archive of it (this or --github is required)")
	fs.StringVar(&a.sumsURL, "sums-url", "", "`URL` of the checksum file (default: the first there is of <url>.sha256, <url>.sha512, and checksums.txt and SHA256SUMS beside it, asked for without the query of --url)")
	fs.StringVar(&a.version, "version", "", "the operator's name `V` for what is at the URL, for the record and for people (default none); the same one and the same URL need no request")

	fs.StringVar(&a.repository, "github", "", "the repository `OWNER/REPO` (this or --url is required)")
	fs.StringVar(&a.tag, "tag", "", "the release's `TAG` (default: that of the highest semantic version, by the API)")
	fs.BoolVar(&a.preReleases, "pre-releases", false, "without --tag, count pre-releases too")
	fs.StringVar(&a.asset, "asset", "", "the `NAME` of the release's file; {name} {version} {semver} {os} {arch} {arm} {ext} are replaced (default: the one for this machine, by the API)")
	fs.StringVar(&a.sums, "sums", "", "the `NAME` of the release's checksum file, with the same replacements (default: the first there is of <asset>.sha256, <asset>.sha512, checksums.txt, SHA256SUMS)")
	fs.StringVar(&a.apiURL, "api-url", "", "the exact root `URL` of the API; GitHub Enterprise: https://HOST/api/v3/ (default https://api.github.com/)")
	fs.StringVar(&a.tokenFile, "token-file", "", "`FILE` with a token, for private repositories and a higher rate limit; it is sent to the API's host only (default none)")

	fs.BoolVar(&a.unpack, "unpack", false, "it is a .tar.gz, .tgz, .tar.zst, .zip, .gz or .zst: take the file that has the base name of PATH out of it; what is verified is the archive")
	fs.StringVar(&a.entry, "entry", "", "with --unpack, the `NAME` or path in the archive to take (default the base name of PATH, in any directory)")

	fs.TextVar(&a.digest, "digest", checksum.Digest{}, "the `DIGEST` that the file must have, from a place of your own: sha256:HEX or sha512:HEX (default none)")
	fs.Var(&a.keys, "key", "`FILE` with a public key, minisign's or a PEM block of ECDSA P-256; given several times, one of them must have signed (default none)")
	fs.BoolVar(&a.unbound, "allow-unbound-version", false, "with --key, also accept a signature that states no version: an old release can then be served as a new one")
	fs.StringVar(&a.reason, "unsigned-checksum", "", "trust the checksum file beside the program, which shows that nothing broke on the way, not who made it; the `REASON` is recorded (default none)")

	fs.BoolVar(&a.trial, "trial", false, "the new program has to confirm itself, or the old one comes back by itself; it must contain this module for that")
	fs.IntVar(&a.starts, "starts", selfupdate.DefaultStarts, "`N` starts, 1 to 16, are its chance to confirm itself")
	fs.DurationVar(&a.deadline, "deadline", selfupdate.DefaultDeadline, "the `DURATION` (such as 90s, 10m) from each start within which it has to; longer than the longest outage that should not end a trial")
	fs.BoolVar(&a.outside, "confirmed-outside", false, "it is confirmed by \"selfupdate confirm\" or another program, so it need not contain this module")

	fs.BoolVar(&a.dryRun, "dry-run", false, "only say what would be done; the checksum file is fetched and the program's URL asked")
	fs.BoolVar(&a.refresh, "refresh", false, "ask for the checksum file even when version and URL are those installed: sees a moved \"latest\"; and try at once what was refused before and is held back")
	fs.Int64Var(&a.maxSize, "max-size", selfupdate.DefaultMaxSize, "the largest download, and program, in `BYTES`, 512 MiB unless given")
	fs.DurationVar(&a.stall, "stall", 60*time.Second, "give up after this `DURATION` (such as 90s, 2m) without a byte; also the longest wait for an answer to begin")
	fs.BoolVar(&a.allowHTTP, "allow-http", false, "accept http:// too: anybody on the way can read and change what is sent (not needed with --digest and --key)")
	fs.BoolVar(&a.anyFormat, "allow-any-format", false, "also install what this machine can't execute by its header")
	fs.BoolVar(&a.otherProgram, "allow-other-program", false, "also install what was built from another Go module, or as another release, than asked for")
}

// check finds every wrong argument before anything is read or asked.
func (a *applyFlags) check(e *env) error {
	if err := e.needTarget(a.target); err != nil {
		return err
	}
	switch {
	case a.set["url"] == a.set["github"]:
		return usagef("one of --url URL and --github OWNER/REPO says where the release is")
	case count(a.set["unsigned-checksum"], a.set["digest"], a.set["key"]) != 1:
		return usagef("one of --key FILE, --digest sha256:HEX and --unsigned-checksum REASON says why the program may run here")
	case a.set["allow-unbound-version"] && !a.set["key"]:
		return usagef("--allow-unbound-version is for --key")
	case a.set["key"] && a.set["url"] && a.version == "" && !a.unbound:
		return usagef("--key: a signature is for one version, so say with --version V which is asked for, or --allow-unbound-version")
	case a.set["digest"] && a.digest.IsZero():
		return usagef("--digest is empty")
	case a.set["unsigned-checksum"] && strings.TrimSpace(a.reason) == "":
		return usagef("--unsigned-checksum needs a reason, such as \"nothing is signed yet\"")
	case a.set["entry"] && (!a.unpack || a.entry == ""):
		return usagef("--entry NAME is for --unpack")
	case a.maxSize < 1:
		return usagef("--max-size: at least 1 byte")
	case a.stall <= 0:
		return usagef("--stall: more than 0, such as 60s")
	}
	if err := a.checkTrial(); err != nil {
		return err
	}
	var err error
	if a.verifiers, err = a.keys.verifiers(); err != nil {
		return err
	}
	if a.set["url"] {
		return a.checkURL()
	}
	return a.checkGitHub()
}

func count(all ...bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

func (a *applyFlags) checkTrial() error {
	switch {
	case a.starts < 1 || a.starts > 16:
		return usagef("--starts: 1 to 16")
	case a.deadline <= 0:
		return usagef("--deadline: more than 0, such as 10m")
	case a.trial:
		return nil
	}
	for _, name := range []string{"starts", "deadline", "confirmed-outside"} {
		if a.set[name] {
			return usagef("--%s is about a trial: add --trial", name)
		}
	}
	return nil
}

func (a *applyFlags) checkURL() error {
	for _, name := range []string{"tag", "pre-releases", "asset", "sums", "api-url", "token-file"} {
		if a.set[name] {
			return usagef("--%s is for --github; the URL names the file", name)
		}
	}
	if err := webURL("url", a.url); err != nil {
		return err
	}
	if a.set["sums-url"] {
		return webURL("sums-url", a.sumsURL)
	}
	return nil
}

// webURL refuses what can't be asked for at all. It never quotes the text, which
// may hold a password.
func webURL(flag, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return usagef("--%s: not a URL that begins with https://", flag)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return usagef("--%s: port %s is not between 1 and 65535", flag, port)
		}
	}
	return nil
}

func (a *applyFlags) run(ctx context.Context, e *env) error {
	e.changes = !a.dryRun
	e.advise = advice{pinned: a.set["digest"] || a.set["key"]}
	cfg := a.config(e)
	if _, err := selfupdate.New(cfg); err != nil { // before any request
		return err
	}
	if a.set["github"] {
		return a.fromGitHub(ctx, e, cfg)
	}
	src := httpsource.New(httpsource.Options{AllowHTTP: a.allowHTTP, Stall: a.stall, Log: e.log()})
	rel, err := src.URL(a.version, a.url)
	if a.set["sums-url"] {
		rel, err = src.URLWithSums(a.version, a.url, a.sumsURL)
	}
	if err != nil {
		return err
	}
	return a.install(ctx, e, cfg, rel)
}

func (a *applyFlags) config(e *env) selfupdate.Config {
	cfg := selfupdate.Config{
		Target:            a.target,
		Trust:             selfupdate.UnsignedChecksum(a.reason),
		Asset:             a.asset,
		Sums:              a.sums,
		MaxSize:           a.maxSize,
		AllowCreate:       a.create,
		AllowAnyFormat:    a.anyFormat,
		AllowOtherProgram: a.otherProgram,
		Refresh:           a.refresh,
		Log:               e.log(),
	}
	if a.set["digest"] {
		cfg.Trust = selfupdate.Pinned(a.digest)
	}
	if a.set["key"] {
		cfg.Trust = selfupdate.Signed(a.verifiers...)
	}
	if a.unbound {
		cfg.Trust = cfg.Trust.AllowUnboundVersion()
	}
	if a.unpack {
		cfg.Unpack = archive.Unpacker{Entry: a.entry}
	}
	if a.trial {
		cfg.Trial = &selfupdate.Trial{Starts: a.starts, Deadline: a.deadline, Outside: a.outside}
	}
	if !a.managedAnyway {
		cfg.Refuse = func(target string) error {
			if m := selfupdate.ManagedBy(target); m != "" {
				return fmt.Errorf("it belongs to %s", m)
			}
			return nil
		}
	}
	return cfg
}

// install brings the target to the release, or says what that would do.
func (a *applyFlags) install(ctx context.Context, e *env, cfg selfupdate.Config, rel selfupdate.Release) error {
	p := e.progress()
	cfg.Progress = p.update
	u, err := selfupdate.New(cfg)
	if err != nil {
		return err
	}
	if a.dryRun {
		plan, err := u.Plan(ctx, rel)
		if err != nil {
			return err
		}
		return a.showPlan(e, plan)
	}
	res, err := u.Apply(ctx, rel)
	p.finish()
	if err != nil {
		return err
	}
	return e.result(outcome{res, e.target}, a.text(e, res))
}

func (a *applyFlags) text(e *env, res selfupdate.Result) string {
	name := program(res.Version, res.SHA256.String())
	switch {
	case res.Outcome == selfupdate.UpToDate && res.OnTrial:
		return fmt.Sprintf("nothing to do: %s is %s already, on trial and not confirmed yet\n", e.target, name)
	case res.Outcome == selfupdate.UpToDate:
		return fmt.Sprintf("nothing to do: %s is %s already\n", e.target, name)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "updated %s to %s", e.target, name)
	if res.Previous != "" {
		fmt.Fprintf(&b, ", from %s", res.Previous)
	}
	fmt.Fprintf(&b, "\ntrust: %s", res.Policy)
	if st, err := selfupdate.ReadStatus(e.target, nil); err != nil || st.Trial != nil || len(st.Previous) > 0 {
		fmt.Fprintf(&b, "; to go back: selfupdate rollback --target %s", shell.Word(e.target))
	}
	b.WriteByte('\n')
	switch {
	case res.OnTrial:
		b.WriteString(a.trialText(e))
	case a.trial:
		b.WriteString("no trial: there is no program to go back to\n")
		fallthrough
	default:
		b.WriteString("a program that is running is not restarted: do that yourself\n")
	}
	return b.String()
}

// trialText says what has to happen now, and what watches over it.
func (a *applyFlags) trialText(e *env) string {
	who := "it must confirm itself"
	if a.outside {
		who = "it must be confirmed (selfupdate confirm --target " + shell.Word(e.target) + ")"
	}
	s := fmt.Sprintf("on trial: restart the service; %s within %s of a start, in at most %d starts, or the program before comes back\n", who, short(a.deadline), a.starts)
	if st, err := selfupdate.ReadStatus(e.target, nil); err == nil {
		s += "protection: " + protection(st.Protection) + "\n"
	}
	return s
}

// short is a duration without units of zero at its end: 10m, not 10m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// planned is a plan with the target that it is about.
type planned struct {
	selfupdate.Plan
	Target string `json:"target"`
}

// showPlan prints a plan; one that would be refused is an error besides.
func (a *applyFlags) showPlan(e *env, plan selfupdate.Plan) error {
	var t table
	t.row("target", e.target)
	t.row("action", strings.TrimSuffix(string(plan.Action)+": "+plan.Reason, ": "))
	t.row("version", sentence(or(plan.Version, "not named"), "now "+or(plan.Current, "unknown")))
	t.row("asset", plan.URL)
	if !plan.Want.IsZero() {
		t.row("digest", plan.Want.String())
	}
	t.row("trust", plan.Policy)
	if plan.Size != 0 {
		t.row("download", size(plan.Size))
	}
	if err := e.result(planned{plan, e.target}, t.String()); err != nil {
		return err
	}
	if plan.Action != selfupdate.IsRejected {
		return nil
	}
	return &refused{fmt.Errorf("%w: %s", selfupdate.ErrRejected, plan.Reason)}
}
