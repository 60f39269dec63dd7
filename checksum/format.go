package checksum

import "strings"

// Format writes entries as GNU's sha256sum does, one a line, in the order given:
// "HEX  NAME", and escaped ("\HEX  NAME") where the name holds a line feed or a
// carriage return. A name that begins with a star, or that holds a word which
// looks like a digest, is written in binary mode ("HEX *NAME").
//
// What [Parse] returned is read back the same, but for the lines' numbers. Of an
// entry from elsewhere, blanks at the ends of the name are lost, and a name with
// a NUL, of another encoding than UTF-8 or of about 4 KiB is refused by Parse. An
// entry without a name or a digest is left out.
func Format(entries []Entry) []byte {
	var out []byte
	for _, e := range entries {
		if e.Name == "" || e.Digest.IsZero() {
			continue
		}
		name := e.Name
		if strings.ContainsAny(name, "\n\r") {
			out = append(out, '\\')
			name = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`).Replace(name)
		}
		out = append(out, e.Digest.Hex()...)
		mode := "  "
		if strings.HasPrefix(e.Name, "*") || hasDigestWord(e.Name) {
			mode = " *"
		}
		out = append(out, mode...)
		out = append(out, name...)
		out = append(out, '\n')
	}
	return out
}
