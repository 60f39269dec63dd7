package selfupdate

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// Platform is what a program is built for.
type Platform struct {
	OS   string // GOOS
	Arch string // GOARCH
	ARM  string // GOARM, "5", "6" or "7"; "" when not known or not arm
	Libc string // "gnu" or "musl" on Linux; "" when not known
}

// Host returns the platform that the running program was built for. Its Libc is
// "": a Go program can't tell, and a static one doesn't care.
func Host() Platform {
	p := Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}
	if p.Arch != "arm" {
		return p
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "GOARM" {
				p.ARM, _, _ = strings.Cut(s.Value, ",") // "6,softfloat" since Go 1.22
			}
		}
	}
	return p
}

// String returns "os/arch" with what else is known.
func (p Platform) String() string {
	s := p.OS + "/" + p.Arch
	if p.ARM != "" {
		s += " GOARM=" + p.ARM
	}
	if p.Libc != "" {
		s += " " + p.Libc
	}
	return s
}

// ExpandAsset returns the asset name that template makes of {name}, {version},
// {semver} (the version without a leading v, as GoReleaser writes it), {os},
// {arch}, {arm} and {ext} (".exe" on Windows, else nothing). An unknown
// placeholder, one without a value, and a result that is no plain file name are
// errors that match [ErrAsset].
func ExpandAsset(template, name, version string, p Platform) (string, error) {
	values := map[string]string{
		"name": name, "version": version, "semver": bareVersion(version),
		"os": p.OS, "arch": p.Arch, "arm": p.ARM,
	}
	var out strings.Builder
	for rest := template; ; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			out.WriteString(rest)
			break
		}
		end := strings.IndexByte(rest, '}')
		if rest[i] == '}' || end < 0 {
			return "", fmt.Errorf("%w: unbalanced brace in the template %s", ErrAsset, quoteName(template))
		}
		out.WriteString(rest[:i])
		key := rest[i+1 : end]
		rest = rest[end+1:]
		if key == "ext" {
			if p.OS == "windows" {
				out.WriteString(".exe")
			}
			continue
		}
		v, known := values[key]
		if !known {
			return "", fmt.Errorf("%w: unknown placeholder %s in the template", ErrAsset, quoteName(key))
		}
		if v == "" {
			return "", fmt.Errorf("%w: no value for {%s} of the template", ErrAsset, key)
		}
		out.WriteString(v)
	}
	if !plainName(out.String()) {
		return "", fmt.Errorf("%w: %s is no plain file name", ErrAsset, quoteName(out.String()))
	}
	return out.String(), nil
}

// bareVersion returns version without the v before its number.
func bareVersion(version string) string {
	if len(version) > 1 && (version[0] == 'v' || version[0] == 'V') && isDigit(version[1]) {
		return version[1:]
	}
	return version
}

// plainName reports whether name is one file name and nothing but that.
func plainName(name string) bool {
	return name != "" && name != "." && !strings.Contains(name, "..") && !strings.ContainsFunc(name, func(r rune) bool {
		return r < ' ' || r == 0x7f || r == '/' || r == '\\'
	})
}

// matchError is the error of [MatchAsset]. It matches [ErrAsset].
type matchError struct {
	ambiguous bool // several match; else none does
	text      string
}

func (e *matchError) Error() string        { return ErrAsset.Error() + ": " + e.text }
func (e *matchError) Class() Class         { return Refused }
func (e *matchError) Is(target error) bool { return target == ErrAsset }

// MatchAsset returns the one asset among names that is a program, or an archive
// of one, for p. It is for releases of others; where the names are known,
// [ExpandAsset] is exact. None and several are errors that match [ErrAsset] and
// list the candidates. The order of names never matters.
//
// Names are read word by word, in the spellings that are in use: x86_64, aarch64,
// armv7l, win32-x64, macos, unknown-linux-gnu. Signatures, checksums, packages
// (.deb, .msi, …), installers, sources and any extension that is not known never match.
//
// name is the program's name as the assets have it: then an asset with further
// words (tool-server, tool-extended) is another program. So is one with a word for a
// channel or a build (tool-canary, tool-dist), unless the assets of every platform have
// it: nightly on all of the release's programs, static on all of this one or behind the
// platform. With "" every program counts, so that a release of several is ambiguous;
// don't pass a guess.
//
// Among assets of one program for p: one that names the architecture goes before a
// universal one and that before one that names none (amd64 then, and both on
// darwin); the exact GOARM before a plain arm, and never another GOARM; and of names
// that differ in nothing but the packing, the program as it stands before archives. The
// C library is never guessed: where assets differ in it and p.Libc is "", they are
// ambiguous. An architecture without a system is Linux where no asset names Linux
// and the packing is one of Unix. An asset with an unknown word where others have the
// architecture names another one, not none. An asset whose name tells no platform matches only when name is exactly
// its name and no other asset tells one.
func MatchAsset(names []string, name string, p Platform) (string, error) {
	if p.OS == "" || p.Arch == "" {
		return "", errors.New("platform without a system or an architecture")
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	all := parseNames(names, name)
	found := candidates(all, name, p)
	switch len(found) {
	case 1:
		return found[0].name, nil
	case 0:
		if a := onlyNamed(all, name); a != "" {
			return a, nil
		}
		return "", &matchError{text: fmt.Sprintf("none of %d is for %s%s: %s", len(names), p, ofProgram(name), listNames(worthListing(all)))}
	}
	return "", &matchError{ambiguous: true, text: fmt.Sprintf("ambiguous for %s%s: %s", p, ofProgram(name), listNames(found))}
}

func ofProgram(name string) string {
	if name == "" {
		return ""
	}
	return " of program " + quoteName(name)
}

// onlyNamed returns name when it is an asset's name and nothing in the release
// tells a platform: the release is for one machine.
func onlyNamed(all []*assetName, name string) string {
	found := ""
	for _, a := range all {
		switch {
		case a.name == name && a.program && !a.tellsPlatform():
			found = a.name
		case a.tellsPlatform():
			return ""
		}
	}
	return found
}

// candidates returns the assets of the program for p, reduced by preference.
func candidates(all []*assetName, name string, p Platform) []*assetName {
	linuxNamed := slices.ContainsFunc(all, func(a *assetName) bool { return a.program && a.os == "linux" })
	groups := map[string][]*assetName{}
	for _, a := range all {
		if !a.program || !a.runsOn(p, linuxNamed) {
			continue
		}
		key := ""
		if name == "" {
			key = strings.Join(a.rest, " ")
		} else if !a.named || !onlyBuild(a, all) {
			continue
		}
		groups[key] = append(groups[key], a)
	}
	var found []*assetName
	for _, g := range groups {
		found = append(found, reduce(g, p)...)
	}
	slices.SortFunc(found, func(a, b *assetName) int { return strings.Compare(a.name, b.name) })
	return found
}

// onlyBuild reports whether the words of a beside the program's name tell a build
// of that, not another program.
func onlyBuild(a *assetName, all []*assetName) bool {
	if len(a.rest) > a.weak+len(a.doubtful) {
		return false
	}
	return !slices.ContainsFunc(a.doubtful, func(text string) bool { return !onAll(text, all) })
}

// onAll reports whether the assets of every platform have the word: then it can't
// tell one program of the release from another. Words for the packing and numbers say
// little enough that other programs needn't have them, and that one asset suffices.
func onAll(text string, all []*assetName) bool {
	weak := lex().weakWords[text] || lex().series.MatchString(text)
	platforms := map[string]bool{}
	for _, a := range all {
		if !a.program || !a.tellsPlatform() || weak && !a.named {
			continue
		}
		if !slices.Contains(a.rest, text) {
			return false
		}
		platforms[a.os+"/"+a.arch] = true
	}
	return weak || len(platforms) > 1
}

// runsOn reports whether the platform that a names can be p.
func (a *assetName) runsOn(p Platform, linuxNamed bool) bool {
	if a.os != p.OS && (a.os != "" || a.arch == "" || !a.unix || p.OS != "linux" || linuxNamed) {
		return false
	}
	if p.OS == "linux" && p.Libc != "" && a.libc != "" && a.libc != p.Libc {
		return false
	}
	return a.archRank(p) >= 0 && a.armRank(p) >= 0
}

// archRank returns how well the architecture fits, 0 best, and -1 when not at all.
func (a *assetName) archRank(p Platform) int {
	mac := p.OS == "darwin" && (p.Arch == "amd64" || p.Arch == "arm64")
	switch {
	case a.arch == p.Arch && a.level > 1:
		return -1 // amd64v3: whether the processor has it isn't known here
	case a.arch == p.Arch:
		return a.level
	case a.arch == "universal" && mac:
		return 2
	case a.arch == "" && !a.oddArch && (mac || p.Arch == "amd64"):
		return 3
	}
	return -1
}

// armRank is archRank for the flavour of 32-bit ARM.
func (a *assetName) armRank(p Platform) int {
	switch {
	case a.arch != "arm":
		return 0
	case p.ARM == "" && a.arm == "":
		return 0
	case p.ARM == "":
		return 1 // one of them is taken, several are ambiguous
	case a.arm == p.ARM:
		return 0
	case a.arm == "hf" && p.ARM != "5":
		return 1
	case a.arm == "":
		return 2
	case a.arm == "soft":
		return 3
	}
	return -1 // another GOARM may well start, and crash later
}

// reduce leaves the best of one program's assets: several when they can't be told apart.
func reduce(as []*assetName, p Platform) []*assetName {
	as = keepBest(as, func(a *assetName) int { return a.archRank(p) })
	as = keepBest(as, func(a *assetName) int { return a.armRank(p) })
	if p.OS == "linux" && p.Libc != "" {
		as = keepBest(as, func(a *assetName) int {
			if a.libc == p.Libc {
				return 0
			}
			return 1
		})
	}
	as = keepBest(as, func(a *assetName) int { return a.special })
	as = keepBest(as, func(a *assetName) int { return a.weak })
	if !onlyPackingDiffers(as) {
		return as
	}
	return keepBest(as, func(a *assetName) int { return a.packing })
}

// onlyPackingDiffers reports whether the names say the same but for the packing. One
// may leave out the version: tool-linux-amd64, tool_1.2.3_linux_amd64.tar.gz.
func onlyPackingDiffers(as []*assetName) bool {
	version := ""
	for _, a := range as {
		if a.shape != as[0].shape || version != "" && a.version != "" && a.version != version {
			return false
		}
		version = max(version, a.version)
	}
	return true
}

func keepBest(as []*assetName, rank func(*assetName) int) []*assetName {
	best := rank(as[0])
	for _, a := range as {
		best = min(best, rank(a))
	}
	return slices.DeleteFunc(slices.Clone(as), func(a *assetName) bool { return rank(a) != best })
}

// worthListing returns the assets that could have matched elsewhere, or all when
// none could.
func worthListing(all []*assetName) []*assetName {
	some := slices.DeleteFunc(slices.Clone(all), func(a *assetName) bool { return !a.program || !a.tellsPlatform() })
	if len(some) == 0 {
		return all
	}
	return some
}

// listNames quotes names, which come from the network, for an error text.
func listNames(as []*assetName) string {
	const most = 20
	var quoted []string
	for i, a := range as {
		if i == most {
			quoted = append(quoted, fmt.Sprintf("and %d more", len(as)-most))
			break
		}
		quoted = append(quoted, quoteName(a.name))
	}
	if len(quoted) == 0 {
		return "it has no assets"
	}
	return strings.Join(quoted, ", ")
}

// quoteName cuts what is quoted, not the name: quoting makes up to six times as much of it.
func quoteName(s string) string {
	const most = 80
	q := strconv.QuoteToASCII(s[:min(len(s), most)])
	if len(s) > most || len(q) > most+2 {
		return q[:min(len(q)-1, most)] + `"…`
	}
	return q
}
