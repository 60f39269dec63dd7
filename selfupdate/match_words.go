package selfupdate

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// word is a part of an asset's name, in lower case.
type word struct {
	text  string
	sep   byte   // before it; 0 at the start
	named bool   // part of the program's name
	stuck string // v2 at the end of a named one
	// set once joined:
	version bool // part of a version
	fact
}

// ordinary reports whether a word says nothing about platform, version or contents.
func (w word) ordinary() bool {
	return w.unknown() && !lex().channelWords[w.text] && !lex().auxWords[w.text]
}

// unknown reports whether a word says nothing about platform or version.
func (w word) unknown() bool {
	return w.fact == fact{} && !w.version && !lex().neutralWords[w.text]
}

// foreign reports a word that can be an architecture that isn't known here.
func (w word) foreign() bool {
	return !w.named && w.unknown() && !lex().weakWords[w.text]
}

// splitWords splits a name in lower case at everything but letters and digits. A
// dotted version stays whole.
func splitWords(s string) []word {
	var ws []word
	sep := byte(0)
	for i := 0; i < len(s); {
		if !isWordByte(s[i]) {
			sep = s[i]
			i++
			continue
		}
		end := i
		if isDigit(s[i]) || s[i] == 'v' {
			end += len(lex().dotted.FindString(s[i:]))
		}
		if end == i {
			for end < len(s) && isWordByte(s[end]) {
				end++
			}
		}
		ws = append(ws, unfuse(word{text: s[i:end], sep: sep})...)
		i = end
	}
	return ws
}

// unfuse splits linuxstatic.
func unfuse(w word) []word {
	if os, found := strings.CutSuffix(w.text, "static"); found && lex().osWords[os] != "" {
		return []word{{text: os, sep: w.sep}, {text: "static"}}
	}
	return []word{w}
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isWordByte(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}

// joinWords puts words together that mean something only so: x86_64, arm-v7,
// mac-os, linux-64, rc.1.
func joinWords(ws []word) []word {
	var out []word
	for _, w := range ws {
		if n := len(out) - 1; n >= 0 && !w.named && !w.version && !out[n].named {
			if j := out[n].text + "_" + w.text; joinable(out[n].text, w.text, j) {
				out[n].text = j
				continue
			}
			if j := out[n].text + "." + w.text; w.sep == '.' && lex().preRelease.MatchString(j) {
				out[n].text = j
				continue
			}
		}
		out = append(out, w)
	}
	for i, w := range out {
		out[i].fact = lookUp(w.text)
		out[i].version = w.version || !w.named && out[i].fact == fact{} &&
			(versionLike(w.text) || i > 0 && out[i-1].version && lex().preRelease.MatchString(w.text))
	}
	return out
}

func joinable(a, b, both string) bool {
	switch {
	case lex().archWords[both] != "" || lex().osWords[both] != "" || lex().macArch[both] != "" || both == "apple_silicon" || lex().amd64Word.MatchString(both):
		return true
	case a == "arm" || a == "arm32" || a == "armeabi":
		return b == "hf" || b == "el" || lex().armWord.MatchString("arm"+b)
	}
	return (b == "64" || b == "32") && lex().archWords[a] == "" && lex().osWords[a] != "" // win-64, but not x86_64 nor arm-32
}

// fact is what one word tells about the platform.
type fact struct {
	os, arch, arm, libc string
	float               string // "hf" or "soft", from the ABI
	level, special      int
	weakArch            bool // the system's word with 32 or 64 in it
	mac                 bool // arch is meant only on darwin
}

// lookUp returns what a (joined) word tells.
func lookUp(w string) fact {
	if f, ok := lookUpArch(w); ok {
		return f
	}
	if os := lex().osWords[w]; os != "" {
		return fact{os: os}
	}
	if d := lex().distributions[w]; d != "" || lex().enterprise.MatchString(w) {
		return fact{os: "linux", libc: strings.TrimPrefix(d, "-"), special: 1}
	}
	if m := lex().abiWord.FindStringSubmatch(w); m != nil {
		f := fact{libc: strings.Replace(m[1], "glibc", "gnu", 1)}
		if strings.Contains(w, "eabi") {
			f.float = "soft"
		}
		if m[2] == "hf" {
			f.float = "hf"
		}
		return f
	}
	for _, os := range lex().fusible {
		if rest, ok := strings.CutPrefix(w, os); ok {
			return fused(lex().osWords[os], strings.TrimPrefix(rest, "_"))
		}
	}
	return fact{}
}

// fused reads what sticks to a system's word: linux64, macos11, winarm64, linuxmusl.
func fused(os, rest string) fact {
	switch rest {
	case "64":
		return fact{os: os, arch: "amd64", weakArch: true}
	case "32":
		return fact{os: os, arch: "386", weakArch: true}
	}
	if lex().systemVersion.MatchString(rest) {
		return fact{os: os, special: 1}
	}
	if f, ok := lookUpArch(rest); ok {
		f.os = os
		return f
	}
	if lex().abiWord.MatchString(rest) {
		return fact{os: os, libc: lookUp(rest).libc}
	}
	return fact{}
}

func lookUpArch(w string) (fact, bool) {
	if a := lex().archWords[w]; a != "" {
		return fact{arch: a}, true
	}
	if w == "apple_silicon" {
		return fact{os: "darwin", arch: "arm64"}, true
	}
	if a := lex().macArch[w]; a != "" {
		return fact{arch: a, mac: true}, true
	}
	if m := lex().amd64Word.FindStringSubmatch(w); m != nil {
		level, _ := strconv.Atoi(m[1])
		return fact{arch: "amd64", level: level}, true
	}
	switch w {
	case "arm", "arm32":
		return fact{arch: "arm"}, true
	case "armhf", "armhfp", "arm32hf", "arm_hf", "arm32_hf":
		return fact{arch: "arm", arm: "hf"}, true
	case "armel", "arm_el":
		return fact{arch: "arm", arm: "5"}, true
	case "armeabi":
		return fact{arch: "arm", arm: "soft"}, true
	}
	if !strings.HasPrefix(w, "arm") {
		return fact{}, false
	}
	m := lex().armWord.FindStringSubmatch(strings.ReplaceAll(strings.Replace(w, "eabi", "", 1), "_", ""))
	switch {
	case m == nil:
		return fact{}, false
	case m[1] == "8" && (strings.HasPrefix(w, "arm32") || m[2] != "" && m[2] != "a"):
		return fact{arch: "armv8l"}, true // 32-bit programs on a 64-bit processor
	case m[1] == "8":
		return fact{arch: "arm64"}, true
	}
	return fact{arch: "arm", arm: m[1]}, true
}

// table reads "value: word word …" lines.
func table(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		value, words, _ := strings.Cut(strings.TrimSpace(line), ":")
		for _, w := range strings.Fields(words) {
			m[w] = value
		}
	}
	return m
}

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// versionLike reports words of a version: 1.2.3, v2, 20240301, a commit. 2fa, rc1
// and dev by themselves are none: they are in the names of other programs.
func versionLike(w string) bool {
	return lex().numberLike.MatchString(w) || lex().buildNumber.MatchString(w) ||
		lex().hash.MatchString(w) && strings.ContainsAny(w, "0123456789")
}

// lexicon is the spellings in use. It is made at the first use: a program that never
// matches by words starts without it.
type lexicon struct {
	osWords, distributions, archWords, macArch map[string]string
	neutralWords, channelWords, weakWords      map[string]bool
	auxWords                                   map[string]bool
	fusible, packings                          []string

	dotted, systemVersion, numberLike, preRelease, trailing *regexp.Regexp
	hash, buildNumber, armWord, amd64Word, abiWord          *regexp.Regexp
	enterprise, series                                      *regexp.Regexp
}

var lex = sync.OnceValue(func() *lexicon {
	return &lexicon{
		osWords: table(osTable), distributions: table(distributionTable), archWords: table(archTable), macArch: table(macArchTable),
		neutralWords: set(neutralSet), channelWords: set(channelSet), weakWords: set(weakSet), auxWords: set(auxSet),
		fusible: strings.Fields(fusibleList), packings: strings.Fields(packingList),

		dotted:        regexp.MustCompile(`^v?[0-9]+(?:\.[0-9]+)+[0-9a-z]*`),
		systemVersion: regexp.MustCompile(`^v?[0-9]+(?:\.[0-9]+)*$`),
		numberLike:    regexp.MustCompile(`^v?[0-9]+(?:\.[0-9]+)+[0-9a-z]*$|^v?[0-9]+(?:(?:alpha|beta|rc|pre)[0-9]+)?$`),
		preRelease:    regexp.MustCompile(`^(?:alpha|beta|rc|pre|dev)\.?[0-9]+$`),
		trailing:      regexp.MustCompile(`^v[0-9]+$`),
		series:        regexp.MustCompile(`^v?[0-9]{1,3}$`),
		hash:          regexp.MustCompile(`^[0-9a-f]{7,40}$`),
		buildNumber:   regexp.MustCompile(`^[br][0-9]{3,}$`),
		armWord:       regexp.MustCompile(`^arm(?:32)?v?([5-8])(l|a|hf|h|el|te|tel|tej|hl|r)?$`),
		amd64Word:     regexp.MustCompile(`^(?:amd64|x86_64|x64)_?v([1-4])$`),
		abiWord:       regexp.MustCompile(`^(gnu|glibc|musl|uclibc)(?:e?abi)?(hf|sf)?[0-9]*$`),
		enterprise:    regexp.MustCompile(`^el[6-9]$|^el10$`),
	}
})

// The tables: "value: spelling spelling …". An architecture or system that Go does not
// have stands for itself, so that it isn't taken for a file without one. The word
// "arch" alone is none of them: it is in the names of programs.
const (
	osTable = `linux: linux gnulinux archlinux
		darwin: darwin macos macosx mac osx apple mac_os os_x mac_os_x
		windows: windows win msvc mingw mingw32 mingw64 cygwin msys msys2
		freebsd: freebsd
		openbsd: openbsd
		netbsd: netbsd
		dragonfly: dragonfly dragonflybsd
		solaris: solaris sunos
		illumos: illumos smartos omnios
		android: android androideabi termux
		ios: ios
		aix: aix
		plan9: plan9
		wasip1: wasi wasip1 wasip2 emscripten
		fuchsia: fuchsia
		haiku: haiku
		hurd: hurd
		redox: redox
		zos: zos`
	fusibleList = "windows macosx macos darwin linux win osx mac freebsd openbsd netbsd"

	// distributions of Linux, with their C library where it says something.
	distributionTable = `musl: alpine
		-: ubuntu debian raspbian fedora centos rhel rocky almalinux opensuse suse sles amazonlinux`

	archTable = `amd64: amd64 x64 x86_64 64bit 64_bit x8664 amd_64 x86_64bit intel64
		386: 386 i386 i486 i586 i686 x86 x86_32 x32 ia32 32bit 32_bit i_386 x86_32bit
		arm64: arm64 aarch64 aarch_64 arm_64 arm_64bit arm64v8 arm64_v8 arm64_v8a armv8a
		ppc64le: ppc64le ppc64el powerpc64le powerpc64el ppcle_64 ppc64_le ppc_64le
		ppc64: ppc64 powerpc64 ppc_64
		ppc: ppc powerpc ppc32 ppc_32
		s390x: s390x s390_64
		s390: s390 s390_32
		riscv64: riscv64 riscv64gc riscv_64 riscv
		riscv32: riscv32
		loong64: loong64 loongarch64 loongarch_64
		mips: mips mips32
		mipsle: mipsle mipsel mips32le mips32el
		mips64: mips64 mips_64
		mips64le: mips64le mips64el
		mipsr6: mipsr6
		mipsr6el: mipsr6el
		mips64r6: mips64r6
		mips64r6el: mips64r6el
		sparc: sparc
		sparc64: sparc64 sparcv9
		ia64: ia64
		m68k: m68k
		sh4: sh4
		hppa: hppa
		arm64be: aarch64_be
		arm64ec: arm64ec
		ilp32: ilp32 gnu_ilp32
		armeb: armeb armbe arm_be
		x32: gnux32 muslx32
		mipsn32: gnuabin32 muslabin32
		wasm: wasm wasm32 wasm64`
	// meant so only on darwin
	macArchTable = `universal: universal universal2 universal_binary all fat
		arm64: silicon m1 arm64e
		amd64: intel`

	neutralSet = "unknown pc exe w64 bit bits"

	// Words of channelSet and weakSet tell a build of the program, or another program:
	// tool-nightly, loki-canary, git-sync, tool-dist.
	channelSet = "snapshot nightly latest canary stable edge preview dirty git main master alpha beta rc pre dev"
	weakSet    = "static release bin binary portable standalone dist"

	// auxSet makes an asset something else than the program.
	auxSet = `source sources src setup installer npm debug dbg debuginfo debugsymbols dsym symbols pdb
		image images airgap vendor chart charts crd crds license licenses manifests completion
		sbom checksum checksums sha1 sha1sum sha256 sha256sum sha256sums sha512 sha512sum sha512sums md5 md5sum
		sig signature provenance attestation intoto manifest headers docs completions manpages`

	// packingList is in the order of preference.
	packingList = ".tar.gz .tgz .zip .tar.zst .tzst .gz .zst .tar.xz .txz .xz " +
		".tar.bz2 .tbz2 .tbz .bz2 .tar.br .br .tar.lz4 .lz4 .7z .tar"
)
