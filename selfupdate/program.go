package selfupdate

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
)

// checkProgram compares Go's build information, where there is some: a program
// must not be replaced by another one, nor by another release of it than the one
// that was asked for.
func checkProgram(candidate io.ReaderAt, old *debug.BuildInfo, version string) error {
	bi, err := buildinfo.Read(candidate)
	if err != nil {
		return nil // no Go program, or without the information: nothing to compare
	}
	if old != nil && modulePath(old) != "" && modulePath(bi) != "" && modulePath(old) != modulePath(bi) {
		return fmt.Errorf("%w: it is built from module %+q, the target from %+q", ErrOtherProgram, clip(bi.Main.Path, 120), clip(old.Main.Path, 120))
	}
	built, ok1 := releaseTag(bi.Main.Version)
	asked, ok2 := releaseTag(version)
	if ok1 && ok2 && built != asked {
		return fmt.Errorf("%w: it says that it is %+q, not %+q", ErrVersionMismatch, bi.Main.Version, version)
	}
	return nil
}

// thisModule is what a program that is to confirm itself must contain.
const thisModule = "github.com/metal-stack/selfreconcile"

// checkConfirms refuses a candidate that can never confirm itself: one whose build
// information, if it has any, does not list this module.
func checkConfirms(candidate io.ReaderAt, old *debug.BuildInfo) error {
	bi, err := buildinfo.Read(candidate)
	switch {
	case err != nil && old != nil: // the program that is to be replaced has some
		return fmt.Errorf("%w: it has no build information of Go at all", ErrCannotConfirm)
	case err != nil || bi.Main.Path == thisModule:
		return nil
	}
	for _, d := range bi.Deps {
		if d.Path == thisModule {
			return nil
		}
	}
	return ErrCannotConfirm
}

// Compiled when they are needed, and not at every start of whatever imports this.
var (
	majorSuffix = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(/v[0-9]+|\.v[0-9]+)$`) })
	cleanTag    = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^v?(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})$`)
	})
)

// modulePath returns the main module without its major version, which changes
// with a release and not with the program.
func modulePath(bi *debug.BuildInfo) string { return majorSuffix().ReplaceAllString(bi.Main.Path, "") }

// releaseTag reads a clean release tag, vX.Y.Z. Everything else is no version
// that could be compared: a pre-release, a pseudo-version, a branch, a hash.
func releaseTag(v string) (n [3]int, ok bool) {
	m := cleanTag().FindStringSubmatch(v)
	if m == nil {
		return n, false
	}
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1]) // at most nine digits
	}
	return n, true
}

// older reports whether both are clean release tags and a is the lower one.
func older(a, b string) bool {
	na, ok1 := releaseTag(a)
	nb, ok2 := releaseTag(b)
	if !ok1 || !ok2 {
		return false
	}
	for i := range na {
		if na[i] != nb[i] {
			return na[i] < nb[i]
		}
	}
	return false
}

// oldProgram returns the build information of what is at the target, or nil.
func (t *target) oldProgram() *debug.BuildInfo {
	f, err := t.sys.open(t.target)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	bi, err := buildinfo.Read(f)
	if err != nil {
		return nil
	}
	return bi
}

// ManagedBy returns which package manager a path belongs to by its place ("Nix",
// "Homebrew", …), or "". Such a program is better updated by that: see [Config.Refuse].
func ManagedBy(path string) string {
	path = strings.ReplaceAll(path, `\`, "/")
	for _, m := range []struct{ part, name string }{
		{"/nix/store/", "Nix"},
		{"/gnu/store/", "Guix"},
		{"/Cellar/", "Homebrew"},
		{"/snap/", "snap"},
		{"/var/lib/flatpak/", "Flatpak"},
		{"/.asdf/installs/", "asdf"},
		{"/mise/installs/", "mise"},
		{"/scoop/apps/", "Scoop"},
		{"/chocolatey/lib/", "Chocolatey"},
		{"/WinGet/Packages/", "winget"},
	} {
		if strings.Contains(path, m.part) {
			return m.name
		}
	}
	return ""
}
