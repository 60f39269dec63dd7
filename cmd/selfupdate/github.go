package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/metal-stack/selfreconcile/selfupdate"
	githubsource "github.com/metal-stack/selfreconcile/source/github"
)

func (a *applyFlags) checkGitHub() error {
	for name, instead := range map[string]string{"sums-url": "--sums NAME", "version": "--tag TAG"} {
		if a.set[name] {
			return usagef("--%s is for --url; with --github it is %s", name, instead)
		}
	}
	for _, name := range []string{"tag", "asset", "sums", "api-url", "token-file"} {
		if a.set[name] && a.flagValue(name) == "" {
			return usagef("--%s is empty", name)
		}
	}
	for _, name := range []string{"asset", "sums"} {
		if !a.set[name] {
			continue
		}
		if _, err := selfupdate.ExpandAsset(a.flagValue(name), "name", "v1.0.0", selfupdate.Host()); err != nil {
			return usagef("--%s: %s", name, strings.TrimPrefix(err.Error(), selfupdate.ErrAsset.Error()+": "))
		}
	}
	if a.set["tag"] && a.preReleases {
		return usagef("--pre-releases is for the newest release; --tag names one")
	}
	var ok bool
	a.owner, a.repo, ok = strings.Cut(a.repository, "/")
	if !ok || a.owner == "" || a.repo == "" || strings.Contains(a.repo, "/") {
		return usagef("--github: OWNER/REPO, such as metal-stack/metalctl, not %q", a.repository)
	}
	if a.set["api-url"] {
		if err := webURL("api-url", a.apiURL); err != nil {
			return err
		}
	}
	return a.checkNames()
}

// checkNames has the source judge what goes into a URL. Without a token and a list
// it makes no request for a tag, so whatever it says is about the argument.
func (a *applyFlags) checkNames() error {
	src, err := githubsource.NewWithOptions(a.owner, a.repo, githubsource.Options{})
	if err != nil {
		return usagef("--github: %s", strings.TrimPrefix(err.Error(), "githubsource: "))
	}
	if !a.set["tag"] {
		return nil
	}
	if _, err := src.Release(context.Background(), a.tag); err != nil {
		return usagef("--tag: %q can't be a tag", a.tag)
	}
	return nil
}

func (a *applyFlags) flagValue(name string) string {
	return map[string]string{"tag": a.tag, "asset": a.asset, "sums": a.sums, "api-url": a.apiURL, "token-file": a.tokenFile}[name]
}

// fromGitHub finds the release and installs it. A tag and an asset's name are
// enough to know its URL, without the API. When there is nothing at that URL, the
// API is asked once: it tells a wrong tag from a wrong name, lists the names that
// there are, and knows the file's real address.
func (a *applyFlags) fromGitHub(ctx context.Context, e *env, cfg selfupdate.Config) error {
	var err error
	if a.set["token-file"] {
		if a.token, err = readToken(a.tokenFile); err != nil {
			return fmt.Errorf("read token: %w", err)
		}
	}
	e.advise.github, e.advise.token = true, a.token != ""
	e.advise.plainAPI = !a.allowHTTP && strings.HasPrefix(strings.ToLower(a.apiURL), "http:")
	direct := a.tag != "" && a.asset != "" && a.token == ""
	rel, err := a.release(ctx, e, !direct)
	if err != nil {
		return err
	}
	if !direct {
		return a.installListed(ctx, e, cfg, rel)
	}
	err = a.install(ctx, e, cfg, rel)
	if !errors.Is(err, selfupdate.ErrNotFound) {
		return err
	}
	listed, lerr := a.release(ctx, e, true)
	switch {
	case errors.Is(lerr, selfupdate.ErrNotFound):
		return lerr // it knows more: there is no such release
	case lerr != nil:
		return err
	}
	return a.installListed(ctx, e, cfg, listed)
}

func (a *applyFlags) release(ctx context.Context, e *env, list bool) (selfupdate.Release, error) {
	src, err := githubsource.NewWithOptions(a.owner, a.repo, githubsource.Options{
		Token: a.token, APIURL: a.apiURL, AllowHTTP: a.allowHTTP, Stall: a.stall,
		PreReleases: a.preReleases, List: list, Log: e.log(),
	})
	if err != nil {
		return selfupdate.Release{}, err
	}
	return src.Release(ctx, a.tag)
}

// installListed installs from a release whose assets are known.
func (a *applyFlags) installListed(ctx context.Context, e *env, cfg selfupdate.Config, rel selfupdate.Release) error {
	u, err := selfupdate.New(cfg)
	if err != nil {
		return err
	}
	base := strings.TrimSuffix(filepath.Base(u.Target()), ".exe")
	if a.asset == "" {
		cfg.Name = programName(assetNames(rel), base, a.repo)
		return a.install(ctx, e, cfg, rel)
	}
	name, err := selfupdate.ExpandAsset(a.asset, base, rel.Version, selfupdate.Host())
	if err != nil {
		return err
	}
	if _, err := rel.Asset(name); err != nil {
		return fmt.Errorf("%w: release %s of %s has no asset %q; it has %s", selfupdate.ErrNotFound, rel.Version, a.repository, name, list(assetNames(rel)))
	}
	return a.install(ctx, e, cfg, rel)
}

func assetNames(rel selfupdate.Release) []string {
	names := make([]string, len(rel.Assets))
	for i, a := range rel.Assets {
		names[i] = a.Name
	}
	return names
}

// programName is what the release's assets call the program: the target's base
// name where an asset goes by it, else the repository's. An asset that mentions
// the target's name without matching it (tool-server for the target server of
// the repository tool) rules the repository's name out: that would be another
// program.
func programName(assets []string, base, repo string) string {
	if _, err := selfupdate.MatchAsset(assets, base, selfupdate.Host()); err == nil {
		return base
	}
	for _, a := range assets {
		if mentions(a, base) {
			return base
		}
	}
	if _, err := selfupdate.MatchAsset(assets, repo, selfupdate.Host()); err == nil {
		return repo
	}
	return base
}

// mentions reports whether word stands in name between other characters than
// letters and digits, whatever the case.
func mentions(name, word string) bool {
	name, word = strings.ToLower(name), strings.ToLower(word)
	inWord := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	for {
		before, after, found := strings.Cut(name, word)
		if !found || word == "" {
			return false
		}
		startsWord := strings.TrimRightFunc(before, inWord) == before
		endsWord := strings.TrimLeftFunc(after, inWord) == after
		if startsWord && endsWord {
			return true
		}
		name = after
	}
}

// list joins names for a person, not too many and none too long: a server chose them.
func list(names []string) string {
	const most, longest = 20, 80
	if len(names) == 0 {
		return "none"
	}
	var shown []string
	for _, n := range names[:min(len(names), most)] {
		if len(n) > longest {
			n = strings.ToValidUTF8(n[:longest], "") + "…"
		}
		shown = append(shown, n)
	}
	s := strings.Join(shown, ", ")
	if len(names) > most {
		s += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return s
}

// readToken reads a token; blanks and line feeds around it are no part of it.
func readToken(path string) (string, error) {
	const most = 4 << 10
	data, err := readSmall(path, most)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	switch {
	case len(data) > most:
		return "", &fileError{path, errors.New("too large for a token")}
	case token == "":
		return "", &fileError{path, errors.New("it holds no token")}
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "", &fileError{path, errors.New("it holds more than a token")}
	}
	return token, nil
}

// fileError is a file of this machine that is not what it should be.
type fileError struct {
	path string
	err  error
}

func (e *fileError) Error() string           { return e.path + ": " + e.err.Error() }
func (e *fileError) Unwrap() error           { return e.err }
func (e *fileError) Class() selfupdate.Class { return selfupdate.Local }
