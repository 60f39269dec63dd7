package checksum

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Made-up digests, by their number of digits.
var (
	hex64  = strings.Repeat("0123456789abcdef", 4)
	alt64  = strings.Repeat("fedcba9876543210", 4)
	hex128 = hex64 + alt64
	alt128 = alt64 + hex64
)

func digits(n int) string { return hex128[:n] }

func utf16Bytes(order binary.AppendByteOrder, s string) []byte {
	var b []byte
	for _, u := range utf16.Encode([]rune(s)) {
		b = order.AppendUint16(b, u)
	}
	return b
}

func TestParseAccepted(t *testing.T) {
	const app = "app_1.2.3_linux_amd64.tar.gz"
	for _, tt := range []struct {
		name, text, asset, want string
	}{
		{"GNU text", hex64 + "  " + app + "\n", app, hex64},
		{"GNU binary", hex64 + " *" + app + "\n", app, hex64},
		{"one blank", hex64 + " " + app + "\n", app, hex64},
		{"tab", hex64 + "\t" + app + "\n", app, hex64},
		{"tab and star", hex64 + "\t*" + app + "\n", app, hex64},
		{"run of blanks", hex64 + " \t  \t" + app + "\n", app, hex64},
		{"run of blanks and star", hex64 + "   *" + app + "\n", app, hex64},
		{"no line end", hex64 + "  " + app, app, hex64},
		{"upper case", strings.ToUpper(hex64) + "  " + app + "\n", app, hex64},
		{"SHA-512 by length", hex128 + "  " + app + "\n", app, hex128},
		{"blanks at the ends", "\t" + hex64 + "  " + app + " \t \n", app, hex64},
		{"blanks before CRLF", hex64 + "  " + app + " \r\n", app, hex64},
		{"CRLF", hex64 + "  " + app + "\r\n" + alt64 + "  b\r\n", app, hex64},
		{"CRCRLF", hex64 + "  " + app + "\r\r\n" + alt64 + "  b\r\r\n", app, hex64},
		{"CR at the end of the file", hex64 + "  " + app + "\r", app, hex64},
		{"byte order mark", "\uFEFF" + hex64 + "  " + app + "\n", app, hex64},
		{"UTF-16LE", "\xff\xfe" + string(utf16Bytes(binary.LittleEndian, hex64+"  "+app+"\r\n")), app, hex64},
		{"UTF-16BE", "\xfe\xff" + string(utf16Bytes(binary.BigEndian, hex64+"  "+app+"\r\n")), app, hex64},
		{"UTF-16 beyond the first plane", "\xff\xfe" + string(utf16Bytes(binary.LittleEndian, hex64+"  a😀é")), "a😀é", hex64},
		{"comments and blank lines", "# sums\n\n  # more\n \t \n" + hex64 + "  " + app + "\n", app, hex64},
		{"prefix", "sha256:" + hex64 + "  " + app + "\n", app, hex64},
		{"prefix and star", "SHA512:" + hex128 + " *" + app + "\n", app, hex128},
		{"BSD tag", "SHA256 (" + app + ") = " + hex64 + "\n", app, hex64},
		{"BSD tag SHA2-256", "SHA2-256 (" + app + ") = " + hex64 + "\n", app, hex64},
		{"BSD tag SHA-256", "SHA-256 (" + app + ") = " + hex64 + "\n", app, hex64},
		{"BSD tag in lower case", "sha256 (" + app + ") = " + strings.ToUpper(hex64) + "\n", app, hex64},
		{"BSD tag SHA512", "SHA512 (" + app + ") = " + hex128 + "\n", app, hex128},
		{"BSD tag SHA-512", "SHA-512 (" + app + ") = " + hex128 + "\n", app, hex128},
		{"OpenSSL 1", "SHA256(" + app + ")= " + hex64 + "\n", app, hex64},
		{"OpenSSL 3", "SHA2-256(" + app + ")= " + hex64 + "\n", app, hex64},
		{"OpenSSL 3 SHA-512", "SHA2-512(" + app + ")= " + hex128 + "\n", app, hex128},
		{"tag without blanks", "SHA256(" + app + ")=" + hex64 + "\n", app, hex64},
		{"tag with parentheses in the name", "SHA256 (a (b) = c) = " + hex64 + "\n", "a (b) = c", hex64},
		{"blanks in the name", hex64 + "  my app  1.0.exe\n", "my app  1.0.exe", hex64},
		{"escaped", `\` + hex64 + `  a\\b\nc\rd` + "\n", "a\\b\nc\rd", hex64},
		{"escaped binary", `\` + hex64 + ` *a\\b` + "\n", `a\b`, hex64},
		{"escaped tag", `\SHA256 (a\\b) = ` + hex64 + "\n", `a\b`, hex64},
		{"backslash without escape", hex64 + `  a\nb` + "\n", `a\nb`, hex64},
		{"name with a star", hex64 + " **star\n", "*star", hex64},
		{"name like a digest after a star", hex64 + " *" + alt64 + "\n", alt64, hex64},
		{"name like a digest in a tag", "SHA256 (" + alt64 + ") = " + hex64 + "\n", alt64, hex64},
		{"name not in ASCII", hex64 + "  größe\n", "größe", hex64},
		{"longest line", hex64 + "  " + strings.Repeat("n", 4096-66) + "\r\n", strings.Repeat("n", 4096-66), hex64},
		{"wanted is the second line", alt64 + "  other\n" + hex64 + "  " + app + "\n", app, hex64},
		{"same entry twice", hex64 + "  " + app + "\n" + strings.ToUpper(hex64) + " *" + app + "\n", app, hex64},
		{"SHA-256 goes first", hex128 + "  " + app + "\n" + hex64 + "  " + app + "\n", app, hex64},
		{"MD5, SHA-1, SHA-384 beside", digits(32) + "  " + app + "\n" + digits(40) + "  " + app + "\n" +
			digits(96) + "  " + app + "\n" + hex64 + "  " + app + "\n", app, hex64},
		{"md5: beside", "md5:" + digits(32) + "  " + app + "\nsha256:" + hex64 + "  " + app + "\n", app, hex64},
		{"other tags beside", "MD5 (" + app + ") = " + digits(32) + "\nSHA-512/256 (" + app + ") = " + alt64 +
			"\nSHA3-256(" + app + ")= " + alt64 + "\nBLAKE2b (" + app + ") = " + hex128 + "\nHMAC-SHA256(" + app + ")= " + alt64 +
			"\nTTH (" + app + ") = LWPNACQDBZRYXW3VHJVCJ64QBZNGHOHHHZWCLNQ\nSHA256 (" + app + ") = " + hex64 + "\n", app, hex64},
		{"other sections beside", "# BLAKE2b\n" + hex128 + "  " + app + "\n\n## Checksums-SHA3-256:\n" + alt64 + "  " + app +
			"\n# == SHA512SUMS ==\n" + alt128 + "  " + app + "\n# made with care, not with MD5\n" + hex64 + "  " + app + "\n", app, hex64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := []byte(tt.text)
			f, err := Parse(data)
			require.NoError(t, err)
			clear(data) // f must not depend on it
			got, err := f.Lookup(tt.asset)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got.Hex())

			side, err := ParseSidecar([]byte(tt.text), "unrelated")
			require.NoError(t, err)
			assert.Equal(t, f, side, "names given in a sidecar count")
		})
	}
}

func TestParseSidecarBareDigest(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"digest", hex64 + "\n", "sha256:" + hex64},
		{"no line end", hex64, "sha256:" + hex64},
		{"CRLF, upper case, blanks", " " + strings.ToUpper(hex64) + " \r\n\r\n", "sha256:" + hex64},
		{"SHA-512", hex128 + "\n", "sha512:" + hex128},
		{"prefix", "sha256:" + hex64 + "\n", "sha256:" + hex64},
		{"SHA-512 prefix", "sha512:" + hex128 + "\n", "sha512:" + hex128},
		{"byte order mark", "\uFEFF" + hex64 + "\n", "sha256:" + hex64},
		{"comment above", "# version: v1\n" + hex64 + "\n", "sha256:" + hex64},
		{"MD5 beside", digits(32) + "\n" + hex64 + "\n", "sha256:" + hex64},
		{"named too", hex64 + "\n" + hex64 + "  dist/app\n", "sha256:" + hex64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := ParseSidecar([]byte(tt.text), "app")
			require.NoError(t, err)
			d, err := f.Lookup("app")
			require.NoError(t, err)
			assert.Equal(t, tt.want, d.String())
			_, err = f.Lookup("other")
			require.ErrorIs(t, err, ErrNotListed)

			_, err = Parse([]byte(tt.text))
			require.ErrorIs(t, err, ErrBareDigest)
			_, err = ParseSidecar([]byte(tt.text), "")
			require.ErrorIs(t, err, ErrBareDigest)
		})
	}
}

func TestParseRefused(t *testing.T) {
	good := hex64 + "  good\n"
	for _, tt := range []struct {
		name, text string
		want       error
		line       int
	}{
		{"no bytes", "", ErrEmpty, 0},
		{"blank lines", "\n \t\r\n", ErrEmpty, 0},
		{"comments only", "# nothing\n", ErrEmpty, 0},
		{"byte order mark only", "\uFEFF", ErrEmpty, 0},
		{"UTF-16 mark only", "\xff\xfe", ErrEmpty, 0},

		{"HTML", "\n\n<!DOCTYPE html>\n<html>\n", ErrHTML, 3},
		{"HTML in lower case", " \t<html><body>" + strings.Repeat("x", 5000), ErrHTML, 1},
		{"HTML in UTF-16", "\xff\xfe" + string(utf16Bytes(binary.LittleEndian, "\r\n<HTML>")), ErrHTML, 2},
		{"HTML in Latin-1", "<p>Seite fehlt f\xfcr", ErrHTML, 1},
		{"HTML after a comment", "# error\n<!-- 404 -->\n", ErrHTML, 2},
		{"XML", "\uFEFF<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code></Error>", ErrHTML, 1},
		{"HTML below entries", good + "<html>", ErrHTML, 2},

		{"NUL", good + hex64 + "  a\x00b\n", ErrNUL, 2},
		{"NUL in a comment", "# \x00\n" + good, ErrNUL, 1},
		{"NUL in UTF-16", "\xff\xfe" + string(utf16Bytes(binary.LittleEndian, good+hex64+"  a\x00")), ErrNUL, 2},
		{"Latin-1", good + hex64 + "  gr\xf6\xdfe\n", ErrEncoding, 2},
		{"UTF-16LE without a mark", string(utf16Bytes(binary.LittleEndian, good)), ErrEncoding, 0},
		{"UTF-16BE without a mark", string(utf16Bytes(binary.BigEndian, good)), ErrEncoding, 0},
		{"UTF-16 with an odd byte", "\xff\xfe" + string(utf16Bytes(binary.LittleEndian, good)) + "a", ErrEncoding, 2},
		{"UTF-16 with half a pair", "\xfe\xff" + string(utf16Bytes(binary.BigEndian, good)) + "\xd8\x00\x00a", ErrEncoding, 2},
		{"UTF-16 cut in a pair", "\xfe\xff\xd8\x00", ErrEncoding, 1},
		{"UTF-32", "\xff\xfe\x00\x00a\x00\x00\x00", ErrEncoding, 0},
		{"second byte order mark", good + "\uFEFF" + good, ErrEncoding, 2},
		{"CR alone as line end", hex64 + "  a\r" + alt64 + "  b\r", ErrCarriageReturn, 1},

		{"clear-signed", "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA1\n\n" + good, ErrClearSigned, 1},
		{"text before clear-signed", good + "\n-----BEGIN PGP SIGNED MESSAGE-----\n", ErrClearSigned, 3},
		{"signature instead of the list", "-----BEGIN PGP SIGNATURE-----\n", ErrClearSigned, 1},

		{"63 digits", good + hex64[1:] + "  a\n", ErrMalformed, 2},
		{"65 digits", good + hex64 + "0  a\n", ErrMalformed, 2},
		{"127 digits", hex128[1:] + " *a\n", ErrMalformed, 1},
		{"129 digits", hex128 + "0  a\n", ErrMalformed, 1},
		{"not hexadecimal", "g" + hex64[1:] + "  a\n", ErrMalformed, 1},
		{"nothing hexadecimal", strings.Repeat("z", 64) + "  a\n", ErrMalformed, 1},
		{"63 digits in a tag", "SHA256 (a) = " + hex64[1:] + "\n", ErrMalformed, 1},
		{"SHA-512 under a SHA-256 tag", good + "SHA256 (a) = " + hex128 + "\n", ErrMalformed, 2},
		{"SHA-256 under a SHA-512 tag", "SHA512(a)= " + hex64 + "\n", ErrMalformed, 1},
		{"prefix in a tag", "SHA256 (a) = sha256:" + hex64 + "\n", ErrMalformed, 1},
		{"base64 in a tag", "SHA256 (a) = 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n", ErrMalformed, 1},
		{"63 digits after a prefix", "sha256:" + hex64[1:] + "  a\n", ErrMalformed, 1},
		{"prefix of another length", "sha512:" + hex64 + "  a\n", ErrMalformed, 1},
		{"SRI", "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=  a\n", ErrMalformed, 1},

		{"bare digest", good + hex64 + "\n", ErrBareDigest, 2},
		{"bare digest with prefix", "sha256:" + hex64 + "\n", ErrBareDigest, 1},
		{"bare MD5", digits(32) + "\n", ErrBareDigest, 1},

		{"unknown escape", `\` + hex64 + `  a\tb` + "\n", ErrEscape, 1},
		{"backslash at the end", `\` + hex64 + `  a\` + "\n", ErrEscape, 1},
		{"escaped without a name", `\` + hex64 + "\n", ErrEscape, 1},

		{"backslash alone", "\\\n", ErrColumns, 1},
		{"free text", good + "all files are signed\n", ErrColumns, 2},
		{"Not Found", "Not Found", ErrColumns, 1},
		{"404", "404: Not Found", ErrColumns, 1},
		{"JSON", `{"message":"Not Found"}`, ErrColumns, 1},
		{"section without a comment sign", "SHA256:\n" + good, ErrColumns, 1},
		{"blank after the prefix", "SHA256: " + hex64 + "\n", ErrColumns, 1},
		{"key and value", "sha256=" + hex64 + "\n", ErrColumns, 1},
		{"digest last", "app.tar.gz  " + hex64 + "\n", ErrColumns, 1},
		{"digest last after a long name", "app_1.2.3_linux_amd64_with_a_very_long_name_that_has_64_bytes.gz  " + hex64 + "\n", ErrColumns, 1},
		{"two digests and a name", hex64 + "  " + hex128 + "  a\n", ErrColumns, 1},
		{"digest, name, digest", hex64 + "  a  " + digits(40) + "\n", ErrColumns, 1},
		{"two digests", hex64 + "  " + alt64 + "\n", ErrColumns, 1},
		{"rhash row", "yq_linux_amd64  " + digits(8) + "  " + digits(32) + "  " + digits(40) + "  " + hex64 + "  " + hex128 + "\n", ErrColumns, 1},
		{"rhash row, name last", digits(8) + "  " + digits(32) + "  " + hex64 + "  a\n", ErrColumns, 1},
		{"star without a name", hex64 + " *\n", ErrColumns, 1},
		{"tag without a name", "SHA256 () = " + hex64 + "\n", ErrColumns, 1},
		{"tag without a value", "SHA256 (a) =\n", ErrColumns, 1},
		{"tag with two values", "SHA256 (a) = " + hex64 + " " + hex64 + "\n", ErrColumns, 1},
		{"tag without a name in front", "(a) = " + hex64 + "\n", ErrColumns, 1},
		{"tag that does not end", "SHA256 (a = " + hex64 + "\n", ErrColumns, 1},
		{"parentheses in free text", "app (the new one) is out\n", ErrColumns, 1},
		{"cksum", "4294967295 7 a\n", ErrColumns, 1},
		{"SFV comment", "; made by rhash\n" + good, ErrColumns, 1},
		{"Get-FileHash list", "\r\nAlgorithm : SHA256\r\nHash : " + hex64 + "\r\n", ErrColumns, 2},
		{"certutil", "SHA256 hash of a.exe:\r\n" + hex64 + "\r\nCertUtil: -hashfile command completed successfully.\r\n", ErrColumns, 1},
		{"minisign signature", "untrusted comment: signature\nRWQ=\n", ErrColumns, 1},

		{"long line", good + hex64 + "  " + strings.Repeat("n", 4097-66) + "\n", ErrLineTooLong, 2},
		{"long comment", "#" + strings.Repeat("n", 4096), ErrLineTooLong, 1},
		{"long blank line", strings.Repeat(" ", 4097) + "\n" + good, ErrLineTooLong, 1},
		{"large file", good + strings.Repeat("\n", MaxSize), ErrTooLarge, 0},

		{"two versions", "# version: v1.2.3\n" + good + "# Version: v1.2.4\n", ErrConflict, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Parse([]byte(tt.text))
			require.ErrorIs(t, err, tt.want)
			assert.Nil(t, f)
			var at *Error
			require.ErrorAs(t, err, &at)
			assert.Equal(t, tt.line, at.Line)
			assertPlain(t, err)
			if tt.want != ErrBareDigest {
				_, err = ParseSidecar([]byte(tt.text), "app")
				require.ErrorIs(t, err, tt.want)
			}
		})
	}
}

// assertPlain checks that a terminal or a log can show the error as it is.
func assertPlain(t *testing.T, err error) {
	t.Helper()
	for _, c := range []byte(err.Error()) {
		if c < ' ' || c > '~' {
			assert.Failf(t, "raw byte in an error text", "%q", err.Error())
			return
		}
	}
	assert.Less(t, len(err.Error()), 400)
}

func TestParseLargestFile(t *testing.T) {
	data := append([]byte(hex64+"  app\n"), bytes.Repeat([]byte("\n"), MaxSize)...)[:MaxSize]
	f, err := Parse(data)
	require.NoError(t, err)
	assert.Len(t, f.Entries(), 1)
}

func TestVersion(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"none", "", ""},
		{"plain", "# version: v1.2.3\n", "v1.2.3"},
		{"other spelling", "##\tVERSION :1.2.3-rc.1+5 \r\n", "1.2.3-rc.1+5"},
		{"twice the same", "# version: v1\n# version: v1\n", "v1"},
		{"prose", "# version: see the file VERSION\n", ""},
		{"not ASCII", "# version: v1\x1b[2J\n", ""},
		{"too long", "# version: v" + strings.Repeat("1", 128) + "\n", ""},
		{"other key", "# go version: v1\n", ""},
		{"below the entries", hex64 + "  b\n# version: v1\n", "v1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Parse([]byte(tt.text + hex64 + "  app\n"))
			require.NoError(t, err)
			assert.Equal(t, tt.want, f.Version())
		})
	}
}

func TestEntries(t *testing.T) {
	f, err := Parse([]byte("# x\n" + hex64 + "  ./a\n" + digits(32) + "  a\n" + hex128 + " *dist/b c\n"))
	require.NoError(t, err)
	got := f.Entries()
	require.Len(t, got, 2)
	assert.Equal(t, Entry{Name: "./a", Digest: mustDigest(t, hex64), Line: 2}, got[0])
	assert.Equal(t, Entry{Name: "dist/b c", Digest: mustDigest(t, hex128), Line: 4}, got[1])

	got[0] = Entry{}
	assert.Equal(t, "./a", f.Entries()[0].Name, "a copy is returned")
}

func mustDigest(t testing.TB, s string) Digest {
	d, err := ParseDigest(s)
	require.NoError(t, err)
	return d
}

func BenchmarkParse(b *testing.B) {
	for name, line := range map[string]string{
		"GNU": hex64 + "  app_linux_amd64.tar.gz\n", "many short": "A(b)=c\n", "blanks": strings.Repeat(" ", 4096) + "\n",
		"words": hex64 + strings.Repeat(" a", 2000) + "\n", "escapes": `\` + hex64 + "  " + strings.Repeat(`\\`, 2000) + "\n",
	} {
		data := append([]byte(hex64+"  app\n"), bytes.Repeat([]byte(line), (MaxSize-100)/len(line))...)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				f, err := Parse(data)
				require.NoError(b, err)
				_, err = f.Lookup("app")
				require.NoError(b, err)
			}
		})
	}
}
