package signature

import (
	"encoding/base64"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

const sums = "0000000000000000000000000000000000000000000000000000000000000000  app\n"

// keyID is the id that minisign itself shows.
func keyID(t testing.TB, s signer) string {
	t.Helper()
	m := regexp.MustCompile(`public key ([0-9A-F]+)`).FindStringSubmatch(s.pub)
	require.NotNil(t, m)
	return strings.Repeat("0", 16-len(m[1])) + m[1]
}

func TestMinisign(t *testing.T) {
	ours, other := newSigner(t, "minisign"), newSigner(t, "minisign")
	good := ours.sign(t, sums, "-t", "version:v2")
	edit := func(line int, change func(string) string) string {
		lines := strings.SplitAfter(good, "\n")
		lines[line] = change(strings.TrimSuffix(lines[line], "\n")) + "\n"
		return strings.Join(lines, "")
	}
	replace := func(line int, from, to string) string {
		return edit(line, func(s string) string {
			require.Contains(t, s, from)
			return strings.Replace(s, from, to, 1)
		})
	}
	raw := func(line int, change func([]byte) []byte) string {
		return edit(line, func(s string) string {
			b, err := base64.StdEncoding.DecodeString(s)
			require.NoError(t, err)
			return base64.StdEncoding.EncodeToString(change(b))
		})
	}
	flip := func(i int) func([]byte) []byte {
		return func(b []byte) []byte { b[i] ^= 1; return b }
	}
	// What the library ignores, or reads otherwise.
	unusedBits := func(s string) string { return strings.TrimSuffix(s, "=")[:98] + "B=" }
	for _, tt := range []struct {
		name, sums, sig string
		version         string
		want            error
	}{
		{"good", sums, good, "v2", nil},
		{"CRLF", sums, strings.ReplaceAll(good, "\n", "\r\n"), "v2", nil},
		{"without the last newline", sums, strings.TrimSuffix(good, "\n"), "v2", nil},
		{"another untrusted comment", sums, edit(0, func(string) string { return "untrusted comment: version:v9" }), "v2", nil},
		{"the tool's own comment", sums, ours.sign(t, sums), "", nil},
		{"version among other words", sums, ours.sign(t, sums, "-t", "timestamp:1\tversion:v2 file:x"), "v2", nil},
		{"no word for the version", sums, ours.sign(t, sums, "-t", "myversion:v2 Version:v3"), "", nil},

		{"two versions", sums, ours.sign(t, sums, "-t", "version:v2 version:v3"), "", ErrMalformed},
		{"an empty version", sums, ours.sign(t, sums, "-t", "version: v2"), "", ErrMalformed},
		{"another key", sums, other.sign(t, sums, "-t", "version:v2"), "", ErrWrongKey},
		{"of another file", sums + "\n", good, "", ErrInvalid},
		{"of an empty file", "", good, "", ErrInvalid},
		{"not prehashed", sums, ours.sign(t, sums, "-l", "-t", "version:v2"), "", ErrMalformed},
		{"not prehashed, said to be", sums, strings.Replace(ours.sign(t, sums, "-l", "-t", "version:v2"), "\nRW", "\nRU", 1), "", ErrInvalid},
		{"prehashed, said not to be", sums, raw(1, func(b []byte) []byte { b[1] = 'd'; return b }), "", ErrMalformed},
		{"unknown algorithm", sums, raw(1, flip(0)), "", ErrMalformed},
		{"another key id", sums, raw(1, flip(2)), "", ErrWrongKey},
		{"R changed", sums, raw(1, flip(10)), "", ErrInvalid},
		{"S changed", sums, raw(1, flip(42)), "", ErrInvalid},
		{"S at least the order", sums, raw(1, func(b []byte) []byte { b[73] |= 0xf0; return b }), "", ErrInvalid},
		{"trusted comment changed", sums, replace(2, "v2", "v3"), "", ErrInvalid},
		{"trusted comment longer", sums, edit(2, func(s string) string { return s + " " }), "", ErrInvalid},
		{"comment's signature changed", sums, raw(3, flip(0)), "", ErrInvalid},
		{"comment's signature that of the file", sums, edit(3, func(string) string {
			b, _ := base64.StdEncoding.DecodeString(strings.Split(good, "\n")[1])
			return base64.StdEncoding.EncodeToString(b[10:])
		}), "", ErrInvalid},
		{"comment's signature of another file", sums, edit(3, func(string) string {
			return strings.Split(ours.sign(t, "x", "-t", "version:v2"), "\n")[3]
		}), "", ErrInvalid},

		{"empty", sums, "", "", ErrMalformed},
		{"HTML", sums, "<html>\x1b[2J</html>", "", ErrMalformed},
		{"a line missing", sums, strings.Join(strings.SplitAfter(good, "\n")[:3], ""), "", ErrMalformed},
		{"a line more", sums, good + "x\n", "", ErrMalformed},
		{"a blank line more", sums, good + "\n", "", ErrMalformed},
		{"two signatures", sums, good + good, "", ErrMalformed},
		{"a byte order mark", sums, "\ufeff" + good, "", ErrMalformed},
		{"no untrusted comment", sums, edit(0, func(s string) string { return s[1:] }), "", ErrMalformed},
		{"no trusted comment", sums, replace(2, "trusted comment: ", ""), "", ErrMalformed},
		{"comments swapped", sums, replace(2, "trusted", "untrusted"), "", ErrMalformed},
		{"blank behind the base64", sums, edit(1, func(s string) string { return s + " " }), "", ErrMalformed},
		{"CR inside the base64", sums, edit(1, func(s string) string { return s[:9] + "\r" + s[9:] }), "", ErrMalformed},
		{"unused bits set", sums, edit(1, unusedBits), "", ErrMalformed},
		{"no padding", sums, edit(1, func(s string) string { return strings.TrimRight(s, "=") }), "", ErrMalformed},
		{"base64 of URLs", sums, edit(3, func(string) string { return strings.Repeat("_", 86) + "==" }), "", ErrMalformed},
		{"a byte less", sums, raw(1, func(b []byte) []byte { return b[:73] }), "", ErrMalformed},
		{"a byte more", sums, raw(1, func(b []byte) []byte { return append(b, 0) }), "", ErrMalformed},
		{"comment's signature cut", sums, raw(3, func(b []byte) []byte { return b[:63] }), "", ErrMalformed},
		{"ESC in the trusted comment", sums, ours.sign(t, sums, "-t", "version:v2 \x1b[2J"), "", ErrMalformed},
		{"ESC in the untrusted comment", sums, replace(0, "signature", "\x1b"), "", ErrMalformed},
		{"CR in the trusted comment", sums, edit(2, func(s string) string { return s + "\r\r" }), "", ErrMalformed},
		{"NUL in the trusted comment", sums, replace(2, "v2", "v2\x00"), "", ErrMalformed},
		{"C1 control in the trusted comment", sums, ours.sign(t, sums, "-t", "version:v2 \u009b2J"), "", ErrMalformed},
		{"no UTF-8 in the trusted comment", sums, ours.sign(t, sums, "-t", "version:v2 \xff"), "", ErrMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := verify(t, ours.verifier(t), tt.sums, map[string]string{"checksums.txt.minisig": tt.sig})
			if tt.want == nil {
				require.NoError(t, err)
				assert.Equal(t, selfupdate.Statement{Key: "minisign " + keyID(t, ours), Version: tt.version}, s)
				return
			}
			require.Error(t, err)
			for _, e := range []error{ErrMalformed, ErrWrongKey, ErrInvalid, selfupdate.ErrNotFound} {
				assert.Equal(t, e == tt.want, isErr(err, e), "%v is %v", err, e)
			}
			require.ErrorIs(t, err, selfupdate.ErrSignature)
			assert.Equal(t, selfupdate.Refused, selfupdate.ClassOf(err))
			plain(t, err, "v3", "html")
		})
	}
	_, err := verify(t, ours.verifier(t), sums, nil)
	require.ErrorIs(t, err, selfupdate.ErrNotFound)
	require.NotErrorIs(t, err, selfupdate.ErrSignature)
}

func TestMinisignKeys(t *testing.T) {
	a, b := newSigner(t, "minisign"), newSigner(t, "minisign")
	line := func(s signer) string { return strings.Split(s.pub, "\n")[1] }
	raw := func(change func([]byte) []byte) string {
		key, err := base64.StdEncoding.DecodeString(line(a))
		require.NoError(t, err)
		return base64.StdEncoding.EncodeToString(change(key))
	}
	for _, tt := range []struct {
		name string
		keys []string
		ok   bool
	}{
		{"the file", []string{a.pub}, true},
		{"its second line", []string{line(a)}, true},
		{"with blanks around", []string{" " + line(a) + "\r\n\n"}, true},
		{"CRLF", []string{strings.ReplaceAll(a.pub, "\n", "\r\n")}, true},
		{"two", []string{b.pub, a.pub}, true},
		{"one twice", []string{a.pub, line(a)}, true},

		{"none", nil, false},
		{"empty", []string{""}, false},
		{"the second empty", []string{a.pub, ""}, false},
		{"the comment alone", []string{strings.Split(a.pub, "\n")[0]}, false},
		{"two in one", []string{a.pub + b.pub}, false},
		{"the secret key", []string{read(t, a.dir, "key")}, false},
		{"a signature", []string{a.sign(t, "x")}, false},
		{"a byte less", []string{raw(func(k []byte) []byte { return k[:41] })}, false},
		{"a byte more", []string{raw(func(k []byte) []byte { return append(k, 0) })}, false},
		{"another algorithm", []string{raw(func(k []byte) []byte { k[1] = 'D'; return k })}, false},
		{"two with one id", []string{a.pub, raw(func(k []byte) []byte { k[20] ^= 1; return k })}, false},
		{"the neutral element", []string{raw(func(k []byte) []byte { return append(k[:10], degenerate[1]...) })}, false},
		{"PEM", []string{newSigner(t, "openssl").pub}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, err := Minisign(tt.keys...)
			if !tt.ok {
				require.ErrorIs(t, err, ErrKey)
				plain(t, err)
				return
			}
			require.NoError(t, err)
			_, err = verify(t, v, sums, map[string]string{"checksums.txt.minisig": a.sign(t, sums)})
			require.NoError(t, err)
		})
	}
}
