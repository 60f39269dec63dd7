package checksum

import (
	"fmt"
	"strings"
)

// columns is a line taken apart. A zero digest is one of another algorithm, an
// empty name a digest alone.
type columns struct {
	digest Digest
	name   string
}

// entry reads a line that is neither blank nor a comment, without blanks at its
// ends.
func (p *parser) entry(line string) error {
	// coreutils marks a line whose name is escaped with a backslash at its
	// beginning, in both formats:
	// https://www.gnu.org/software/coreutils/manual/html_node/cksum-output-modes.html
	body, escaped := strings.CutPrefix(line, `\`)
	c, isTag, err := splitTag(body)
	if !isTag {
		c, err = p.splitGNU(body)
	}
	if err != nil {
		return err
	}
	if escaped {
		if c.name, err = unescape(c.name); err != nil {
			return err
		}
	}
	if c.name == "" {
		if p.asset == "" {
			return ErrBareDigest
		}
		c.name = p.asset
	}
	f := &p.file
	if c.digest.IsZero() {
		f.skipped = append(f.skipped, skipped{name: c.name, line: p.line})
	} else {
		f.entries = append(f.entries, Entry{Name: c.name, Digest: c.digest, Line: p.line})
	}
	return nil
}

// splitTag reads "TAG (NAME) = VALUE", and with fewer blanks OpenSSL's
// "TAG(NAME)= VALUE". The name ends at the last parenthesis, as in coreutils:
// names may hold any, values none.
func splitTag(line string) (c columns, isTag bool, err error) {
	end := strings.IndexFunc(line, func(r rune) bool { return !isTagChar(r) })
	if end <= 0 || end > 32 {
		return columns{}, false, nil
	}
	rest, ok := strings.CutPrefix(strings.TrimLeft(line[end:], blanks), "(")
	last := strings.LastIndexByte(rest, ')')
	if !ok || last < 0 {
		return columns{}, false, nil
	}
	value, ok := strings.CutPrefix(strings.TrimLeft(rest[last+1:], blanks), "=")
	if !ok {
		return columns{}, false, nil
	}
	value = strings.TrimLeft(value, blanks)
	c.name = strings.Trim(rest[:last], blanks)
	if c.name == "" || value == "" || strings.ContainsAny(value, blanks) {
		return columns{}, true, fmt.Errorf("%w: want %s", ErrColumns, wantTag)
	}
	alg, _, _ := algorithmNamed(line[:end])
	if alg == 0 {
		return c, true, nil
	}
	c.digest, err = parseHex(value)
	if err == nil && c.digest.alg != alg {
		err = fmt.Errorf("%w: the tag says %v, the length %v", ErrMalformed, alg, c.digest.alg)
	}
	return c, true, err
}

func isTagChar(r rune) bool {
	return r < 0x80 && (isAlnum(byte(r)) || strings.ContainsRune("-_/.+", r))
}

// splitGNU reads "HEX  NAME", "HEX *NAME" and "HEX".
func (p *parser) splitGNU(line string) (columns, error) {
	word, name := line, ""
	if i := strings.IndexAny(line, blanks); i >= 0 {
		word, name = line[:i], strings.TrimLeft(line[i:], blanks)
	}
	name, star := strings.CutPrefix(name, "*")
	name = strings.TrimLeft(name, blanks)
	// The star says where the name begins, so that it may look like anything.
	if !star && hasDigestWord(name) {
		return columns{}, fmt.Errorf("%w: more than one digest, or the digest is not in front", ErrColumns)
	}
	digest, ok, err := p.readDigest(word)
	switch {
	case err != nil:
		return columns{}, err
	case !ok:
		return columns{}, fmt.Errorf("%w: %s", ErrColumns, hint(line))
	case star && name == "":
		return columns{}, fmt.Errorf("%w: no name after the star", ErrColumns)
	}
	return columns{digest: digest, name: name}, nil
}

// readDigest reads the first word of a line. It returns a zero Digest for another
// algorithm, and false for a word that is no digest at all.
func (p *parser) readDigest(word string) (d Digest, ok bool, err error) {
	if prefix, value, found := strings.Cut(word, ":"); found && value != "" {
		alg, _, known := algorithmNamed(prefix)
		switch {
		case alg != 0:
			d, err = ParseDigest(word)
			return d, err == nil, err
		case known && isHex(value):
			return Digest{}, true, nil
		}
		return Digest{}, false, nil
	}
	d, err = parseHex(word)
	switch {
	case err == nil && len(word) == p.section:
		return Digest{}, true, nil
	case err == nil:
		return d, true, nil
	case isHex(word) && otherLength(len(word)):
		return Digest{}, true, nil
	case spoiltDigest(word):
		return Digest{}, false, err
	}
	return Digest{}, false, nil
}

func hasDigestWord(name string) bool {
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == ' ' || r == '\t' }) {
		if digestWord(word) {
			return true
		}
	}
	return false
}

const wantTag = `"SHA256 (NAME) = DIGEST"`

// hint tells a publisher what to change. It must not repeat the line.
func hint(line string) string {
	switch {
	case strings.HasPrefix(line, "{") || strings.HasPrefix(line, "["):
		return "it looks like JSON"
	case strings.HasPrefix(line, "Algorithm"):
		return "it looks like the output of Get-FileHash; write its Hash and the name on one line"
	case strings.Contains(line, " hash of "):
		return "it looks like the output of certutil; write the digest and the name on one line"
	}
	return `no digest; want "DIGEST  NAME" or ` + wantTag
}

// unescape resolves the escapes of coreutils and, like it, refuses any other.
func unescape(name string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("%w: there is no name", ErrEscape)
	}
	var out strings.Builder
	for {
		before, after, found := strings.Cut(name, `\`)
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		switch {
		case strings.HasPrefix(after, `\`):
			out.WriteByte('\\')
		case strings.HasPrefix(after, "n"):
			out.WriteByte('\n')
		case strings.HasPrefix(after, "r"):
			out.WriteByte('\r')
		default:
			return "", ErrEscape
		}
		name = after[1:]
	}
}
