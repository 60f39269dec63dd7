package selfupdate

import (
	"slices"
	"strings"
)

// assetName is what an asset's name tells.
type assetName struct {
	name    string
	stem    string // in lower case, without packing
	packing int    // rank of the packing: 0 and 1 are the program as it stands
	unix    bool   // a packing that is usual on Unix
	exe     bool
	oddArch bool   // an unknown word stands where others have the architecture
	named   bool   // has the program's name
	parts   []word // as they are written
	words   []word // joined
	told
}

// told is what the words of an assetName say.
type told struct {
	program  bool     // or an archive of one; not a signature, package, source, …
	os, arch string   // Go's names, and "universal" on darwin
	arm      string   // of arch arm: "5".."7", "hf", "soft" or ""
	level    int      // of arch amd64: 1..4
	libc     string   // of os linux
	special  int      // 1: made for one version or distribution of the system
	shape    string   // the words but for the version's
	version  string   // the others
	archAt   int      // the word that names arch, or -1
	rest     []string // words that are neither platform nor version
	weak     int      // how many of rest say how the program is built
	doubtful []string // those of rest that may tell a build or another program
}

func (a *assetName) tellsPlatform() bool { return a.os != "" || a.arch != "" }

// parseNames reads all names of a release; name is the program's or "".
func parseNames(names []string, name string) []*assetName {
	nameWords := splitWords(strings.TrimSuffix(strings.ToLower(name), ".exe"))
	all := make([]*assetName, len(names))
	for i, n := range names {
		a := &assetName{name: n}
		a.unpack()
		a.parts = splitWords(a.stem)
		if len(nameWords) > 0 {
			a.named = markName(a.parts, nameWords)
		}
		a.join()
		all[i] = a
	}
	markTrailing(all)
	if name == "" {
		markShared(all)
	}
	for _, a := range all {
		a.oddArch = a.arch == "" && slices.ContainsFunc(all, a.hasOddArch)
	}
	return all
}

// join puts the parts of the name together and reads them.
func (a *assetName) join() {
	a.words = joinWords(slices.Clone(a.parts))
	a.read()
}

// markTrailing marks v2 as a version where all names end in it, of whatever
// architecture: amd64-v2 and arm64-v2 aren't flavours of these.
func markTrailing(all []*assetName) {
	var of []*assetName
	last, several := "", false
	for _, a := range all {
		if !a.program || a.arch == "" {
			continue
		}
		of = append(of, a)
		w := a.parts[len(a.parts)-1].text
		if len(of) == 1 {
			last = w
		}
		if w != last || !lex().trailing.MatchString(w) {
			return
		}
		several = several || a.arch != of[0].arch
	}
	if !several {
		return
	}
	for _, a := range of {
		a.parts[len(a.parts)-1].version = true
		a.join()
	}
}

// hasOddArch reports whether an unknown word of a stands where b names its
// architecture: tool-linux-alpha beside tool-linux-arm64.
func (a *assetName) hasOddArch(b *assetName) bool {
	if b.archAt < 0 || b.archAt >= len(a.words) || !a.words[b.archAt].foreign() {
		return false
	}
	for i, w := range b.words[:b.archAt] {
		if v := a.words[i]; v.text != w.text && (v.os == "" || w.os == "") {
			return false
		}
	}
	return true
}

// unpack takes archive endings and .exe from the name.
func (a *assetName) unpack() {
	stem, longest := strings.ToLower(a.name), ""
	for i, ext := range lex().packings {
		if strings.HasSuffix(stem, ext) && len(ext) > len(longest) {
			longest, a.packing = ext, i+2
		}
	}
	a.unix = longest == "" || longest == ".gz" || strings.HasPrefix(longest, ".t")
	a.stem, a.exe = strings.CutSuffix(strings.TrimSuffix(stem, longest), ".exe")
	if longest == "" && !a.exe {
		a.packing = 1
	}
}

// markName marks the program's name among words. A version may stick to it (go1.22.0,
// gov1), but a number alone makes another name (iperf3).
func markName(words []word, name []word) bool {
	last := len(name) - 1
	for i := 0; i+last < len(words); i++ {
		tail, found := strings.CutPrefix(words[i+last].text, name[last].text)
		found = found && (tail == "" || stuckVersion(tail, words[i+last+1:]))
		for k := 0; found && k < last; k++ {
			found = words[i+k].text == name[k].text
		}
		if found {
			for k := range name {
				words[i+k].named = true
			}
			if tail != "" && !dotted(words[i+last+1:]) {
				words[i+last].stuck = tail
			}
			return true
		}
	}
	return false
}

// stuckVersion reports whether tail begins a version; next are the words behind it.
func stuckVersion(tail string, next []word) bool {
	if !lex().systemVersion.MatchString(tail) {
		return false
	}
	return tail[0] == 'v' || dotted(next)
}

// dotted reports whether next goes on with a version's number.
func dotted(next []word) bool {
	return len(next) > 0 && next[0].sep == '.' && isDigit(next[0].text[0])
}

// markShared marks words as the program's name that only look like a platform or
// an auxiliary file: those that all assets begin with and that an ordinary word
// follows (go-arm-tool-linux, go-arm-tool-windows).
func markShared(all []*assetName) {
	var shared []word
	var of []*assetName
	for _, a := range all {
		if !a.tellsPlatform() || a.otherFile() {
			continue
		}
		if of = append(of, a); len(of) == 1 {
			shared = a.words
		}
		k := 0
		for k < min(len(shared), len(a.words)) && shared[k].text == a.words[k].text {
			k++
		}
		shared = shared[:k]
	}
	for len(shared) > 0 && !shared[len(shared)-1].ordinary() {
		shared = shared[:len(shared)-1]
	}
	if len(of) < 2 {
		return
	}
	for _, a := range of {
		for k := range shared {
			a.words[k].named = !a.installs(a.words[k])
		}
		before := a.told
		if a.read(); !a.tellsPlatform() {
			a.told = before
		}
	}
}

// read derives what the words tell. Where several name a system or an
// architecture the last does: names of programs come first.
func (a *assetName) read() {
	a.told = told{program: plainName(a.name) && !a.otherFile()}
	if a.exe {
		a.os = "windows"
	}
	osAt := -1
	for i, w := range a.words {
		if !w.named && w.os != "" {
			a.os, osAt = w.os, i
		}
	}
	a.archAt = a.readArch()
	a.shape, a.version = splitVersion(a.words)
	for i, w := range a.words {
		a.readWord(i, osAt)
		if !w.named && w.libc != "" {
			a.libc = w.libc
		}
		if !w.named && a.arch == "arm" && a.arm == "" {
			a.arm = w.float
		}
	}
	a.program = a.program && !(a.exe && a.os != "windows")
}

// readWord reads the word at, where the one at osAt names the system.
func (a *assetName) readWord(at, osAt int) {
	w := a.words[at]
	switch {
	case w.stuck != "":
		a.readDoubtful(at, w.stuck)
	case w.named || at == a.archAt:
	case a.inOtherName(at, osAt):
		a.readDoubtful(at, w.text)
	case w.os != "" && (at == osAt || w.os == a.os || w.os == "linux" && a.os == "android"):
		a.special = max(a.special, w.special)
	case w.arch != "" && (w.arch == a.arch || a.arch == "universal"), w.os == "" && w.libc != "":
	case w.version && !a.isSeries(at), lex().neutralWords[w.text] && a.isNeutral(at):
	default:
		a.program = a.program && !lex().auxWords[w.text] && !a.installs(w)
		a.readDoubtful(at, w.text)
	}
}

// inOtherName reports whether a word for a platform is before the program's name and
// those that name the platform are behind it: linux-agent-linux-amd64 isn't agent.
func (a *assetName) inOtherName(at, osAt int) bool {
	if !a.named || a.words[at].fact == (fact{}) {
		return false
	}
	name := slices.IndexFunc(a.words, func(w word) bool { return w.named })
	return at < name && at != osAt && max(osAt, a.archAt) > name
}

// readDoubtful reads text of the word at, which is in rest. It may tell a build of the
// program, or another program where it stands beside the name. Before the name it is
// part of another name.
func (a *assetName) readDoubtful(at int, text string) {
	a.rest = append(a.rest, text)
	switch packing := lex().weakWords[text]; {
	case packing && a.behindPlatform(at):
		a.weak++
	case packing, lex().channelWords[text], lex().neutralWords[text], lex().series.MatchString(text):
		if slices.ContainsFunc(a.words[:at+1], func(w word) bool { return w.named }) {
			a.doubtful = append(a.doubtful, text)
		}
	}
}

// behindPlatform reports whether a word before the one at names the platform.
func (a *assetName) behindPlatform(at int) bool {
	return slices.ContainsFunc(a.words[:at], func(w word) bool { return !w.named && (w.os != "" || w.arch != "") })
}

// isSeries reports a number directly behind the program's name that may be part of it:
// the 3 of iperf-3, but not 1.2.
func (a *assetName) isSeries(at int) bool {
	w := a.words[at]
	return a.named && at > 0 && a.words[at-1].named && w.sep != '.' && lex().series.MatchString(w.text)
}

// isNeutral reports whether the words pc and bit say nothing: they don't in
// x86_64-pc-windows, but do in agent-pc-linux.
func (a *assetName) isNeutral(at int) bool {
	switch a.words[at].text {
	case "exe":
		return a.words[at].sep == '.'
	case "w64":
		return at > 0
	}
	return a.behindPlatform(at)
}

// installs reports FooSetup of FooSetup.exe.
func (a *assetName) installs(w word) bool {
	return a.exe && (strings.HasSuffix(w.text, "setup") || strings.HasSuffix(w.text, "installer"))
}

// splitVersion joins the words of a name and, apart from them, those of a version.
func splitVersion(words []word) (shape, version string) {
	for _, w := range words {
		if w.version {
			version += " " + w.text
		} else {
			shape += " " + w.text
		}
	}
	return shape, version
}

// readArch finds the architecture and returns the word that names it. A word
// such as win32 or linux64 counts only where no other names one: on Node's
// win32-x64 and win32-arm64 it is the system's name.
func (a *assetName) readArch() int {
	at, weak := -1, true
	for i, w := range a.words {
		f := w.fact
		if w.named || f.arch == "" || f.mac && a.os != "darwin" || f.weakArch && !weak {
			continue
		}
		arch := f.arch
		if a.os == "darwin" && w.text == "x86" {
			arch = "amd64"
		}
		if both := a.arch + " " + arch; at == i-1 && at >= 0 && a.os == "darwin" && (both == "amd64 arm64" || both == "arm64 amd64") {
			arch = "universal"
		}
		a.arch, a.arm, a.level, at, weak = arch, f.arm, f.level, i, f.weakArch
	}
	return at
}

// otherFile reports an ending that is no program's: .sbom, .sig, .deb, and
// whatever else is not known.
func (a *assetName) otherFile() bool {
	if len(a.words) == 0 {
		return true
	}
	last := a.words[len(a.words)-1]
	if last.sep != '.' {
		return false
	}
	return last.fact == fact{} && !lex().weakWords[last.text] && !a.endsInVersion()
}

// endsInVersion reports a version as the last word, or the last number of one: not
// the 256 of tool.256.
func (a *assetName) endsInVersion() bool {
	n := len(a.words) - 1
	last := a.words[n]
	if !last.version || lex().hash.MatchString(last.text) && !lex().numberLike.MatchString(last.text) {
		return false
	}
	return last.text[0] == 'v' || strings.Contains(last.text, ".") || n > 0 && (a.words[n-1].version || a.words[n-1].libc != "")
}
