package selfupdate

import (
	"strings"
)

// assetName is what an asset's name tells.
type assetName struct {
	name    string
	stem    string // in lower case, without packing
	packing int    // rank of the packing: 0 and 1 are the program as it stands
	exe     bool
	named   bool // has the program's name
	words   []word
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
	rest     []string // words that are neither platform nor version
	weak     int      // how many of rest are weakWords
}

func (a *assetName) tellsPlatform() bool { return a.os != "" || a.arch != "" }

// parseNames reads all names of a release; name is the program's or "".
func parseNames(names []string, name string) []*assetName {
	nameWords := splitWords(strings.TrimSuffix(strings.ToLower(name), ".exe"))
	all := make([]*assetName, len(names))
	for i, n := range names {
		a := &assetName{name: n}
		a.unpack()
		a.words = splitWords(a.stem)
		if len(nameWords) > 0 {
			a.named = markName(a.words, nameWords)
		}
		a.words = joinWords(a.words)
		a.read()
		all[i] = a
	}
	if name == "" {
		markShared(all)
	}
	return all
}

// unpack takes archive endings and .exe from the name.
func (a *assetName) unpack() {
	stem, longest := strings.ToLower(a.name), ""
	for i, ext := range lex().packings {
		if strings.HasSuffix(stem, ext) && len(ext) > len(longest) {
			longest, a.packing = ext, i+2
		}
	}
	a.stem, a.exe = strings.CutSuffix(strings.TrimSuffix(stem, longest), ".exe")
	if longest == "" && !a.exe {
		a.packing = 1
	}
}

// markName marks the program's name among words. A version may stick to it (go1.22.0).
func markName(words []word, name []word) bool {
	last := len(name) - 1
	for i := 0; i+last < len(words); i++ {
		tail, found := strings.CutPrefix(words[i+last].text, name[last].text)
		found = found && (tail == "" || lex().stuckVersion.MatchString(tail))
		for k := 0; found && k < last; k++ {
			found = words[i+k].text == name[k].text
		}
		if found {
			for k := range name {
				words[i+k].named = true
			}
			return true
		}
	}
	return false
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
			a.words[k].named = true
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
	archAt := a.readArch()
	a.shape, a.version = splitVersion(a.words)
	for i, w := range a.words {
		f := w.fact
		switch {
		case w.named || i == archAt:
		case f.os != "" && (i == osAt || f.os == a.os || f.os == "linux" && a.os == "android"):
			a.special = max(a.special, f.special)
		case f.arch != "" && (f.arch == a.arch || a.arch == "universal"), f.os == "" && f.libc != "", versionLike(w.text), lex().neutralWords[w.text]:
		default:
			a.rest = append(a.rest, w.text)
			a.program = a.program && !lex().auxWords[w.text]
			if lex().weakWords[w.text] {
				a.weak++
			}
		}
		if !w.named && f.libc != "" {
			a.libc = f.libc
		}
		if !w.named && a.arch == "arm" && a.arm == "" {
			a.arm = f.float
		}
	}
	a.program = a.program && !(a.exe && a.os != "windows")
}

// splitVersion joins the words of a name and, apart from them, those of a version.
func splitVersion(words []word) (shape, version string) {
	for _, w := range words {
		if (w.fact == fact{}) && versionLike(w.text) {
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
	return last.fact == fact{} && !lex().weakWords[last.text] && !lex().numberLike.MatchString(last.text)
}
