package checksum

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Entry is one line of a checksum file: the digest of a named file.
type Entry struct {
	Name   string // as written, its directories included, its escapes resolved
	Digest Digest
	Line   int // from 1
}

// File is a checksum file that was read. It does not change any more and is safe
// for concurrent use. The zero File lists nothing.
type File struct {
	entries     []Entry
	skipped     []skipped
	version     string
	versionLine int
}

// skipped is a line of an algorithm that is not accepted. Only its name matters:
// to tell "weak only" from "not listed".
type skipped struct {
	name string
	line int
}

// Parse reads a list of digests and names, such as checksums.txt. It does not
// keep data. An error is an [*Error], and then there is no File.
func Parse(data []byte) (*File, error) { return parse(data, "") }

// ParseSidecar reads the file that is published beside asset as <asset>.sha256,
// <asset>.sha512 or <asset>.sha256sum. It accepts what [Parse] accepts, and
// digests without a name, which stand for asset. Names count where they are
// given: a sidecar that names another file has no entry for asset, and
// [File.Lookup] says so. An empty asset is the same as Parse.
func ParseSidecar(data []byte, asset string) (*File, error) { return parse(data, asset) }

// Entries returns a copy of the SHA-256 and SHA-512 entries in the order of their
// lines. Contradictions are included: only [File.Lookup] judges them.
func (f *File) Entries() []Entry { return slices.Clone(f.entries) }

// Version returns what the comment "# version: v1.2.3" says, "" if there is none.
// The key may have either case; the value is one word of at most 128 visible
// ASCII characters, and any other comment with this key is only a comment. The
// value is not judged further. It is as trustworthy as the file.
func (f *File) Version() string { return f.version }

const (
	maxLine    = 4 << 10
	maxVersion = 128
	blanks     = " \t"
)

type parser struct {
	file    File
	asset   string // what a digest alone stands for; "" in a list
	section int    // digits of the other algorithm that the last heading named, or 0
	line    int
}

func parse(data []byte, asset string) (*File, error) {
	rest, err := decode(data)
	if err != nil {
		return nil, err
	}
	p := parser{asset: asset}
	for rest != "" {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		p.line++
		if err := p.add(strings.TrimRight(line, "\r")); err != nil {
			return nil, &Error{Line: p.line, Err: err}
		}
	}
	if len(p.file.entries)+len(p.file.skipped) == 0 {
		return nil, &Error{Err: ErrEmpty}
	}
	return &p.file, nil
}

func (p *parser) add(line string) error {
	if err := checkLine(line); err != nil {
		return err
	}
	line = strings.TrimRight(strings.TrimLeft(line, blanks), blanks+"\r")
	switch {
	case line == "":
		return nil
	case strings.Contains(line, "\r"):
		return ErrCarriageReturn
	case line[0] == '#':
		return p.comment(strings.Trim(line, "#"+blanks))
	}
	return p.entry(line)
}

// checkLine refuses what no line may be. Web pages and signatures come first:
// they say more than an overlong line or a foreign encoding, which they often
// have too.
func checkLine(line string) error {
	start := strings.TrimSpace(line)
	switch {
	case strings.HasPrefix(start, "<"):
		return ErrHTML
	case strings.HasPrefix(start, "-----BEGIN "):
		return ErrClearSigned
	case len(line) > maxLine:
		return fmt.Errorf("%w: %d bytes", ErrLineTooLong, len(line))
	case strings.Contains(line, "\x00"):
		return ErrNUL
	case !utf8.ValidString(line):
		return ErrEncoding
	case strings.HasPrefix(start, byteOrderMark):
		return fmt.Errorf("%w: a second byte order mark; were files joined?", ErrEncoding)
	}
	return nil
}

func (p *parser) comment(text string) error {
	key, value, ok := strings.Cut(text, ":")
	if ok && strings.EqualFold(strings.Trim(key, blanks), "version") {
		return p.versionIs(strings.Trim(value, blanks))
	}
	if digits, ok := heading(text); ok {
		p.section = digits
	}
	return nil
}

func (p *parser) versionIs(version string) error {
	if version == "" || len(version) > maxVersion {
		return nil
	}
	for _, c := range []byte(version) {
		if c <= ' ' || c > '~' {
			return nil
		}
	}
	f := &p.file
	if f.version != "" && f.version != version {
		return fmt.Errorf("%w: version %s, but %s on line %d", ErrConflict, quote(version), quote(f.version), f.versionLine)
	}
	f.version, f.versionLine = version, p.line
	return nil
}
