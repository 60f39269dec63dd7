package signature

import (
	"bytes"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"math/big"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

func isErr(err, target error) bool { return errors.Is(err, target) }

// opensslID is a key's id as the documentation says, by openssl.
func opensslID(t testing.TB, s signer) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "openssl pkey -pubin -in "+filepath.Join(s.dir, "pub")+" -outform DER | sha256sum").Output()
	require.NoError(t, err)
	return string(out[:16])
}

func TestECDSA(t *testing.T) {
	ours, other := newSigner(t, "openssl"), newSigner(t, "openssl")
	wrapped := ours.sign(t, sums)
	good := strings.ReplaceAll(wrapped, "\n", "") // as cosign writes it
	der, err := base64.StdEncoding.DecodeString(good)
	require.NoError(t, err)
	b64 := base64.StdEncoding.EncodeToString
	numbers := func(r, s *big.Int) string {
		b, err := asn1.Marshal(struct{ R, S *big.Int }{r, s})
		require.NoError(t, err)
		return b64(b)
	}
	one, all := big.NewInt(1), new(big.Int).SetBytes(bytes.Repeat([]byte{0xff}, 32))
	for _, tt := range []struct {
		name, sums, sig string
		want            error
	}{
		{"one line", sums, good, nil},
		{"one line and its end", sums, good + "\n", nil},
		{"wrapped, as openssl base64 does", sums, wrapped, nil},
		{"wrapped, as base64 does", sums, good[:76] + "\n" + good[76:] + "\n", nil},
		{"CRLF", sums, strings.ReplaceAll(wrapped, "\n", "\r\n"), nil},

		{"another key", sums, other.sign(t, sums), ErrInvalid},
		{"of another file", sums + "\n", good, ErrInvalid},
		{"other numbers", sums, numbers(one, one), ErrInvalid},
		{"R is 0", sums, numbers(new(big.Int), one), ErrMalformed},
		{"S is 0", sums, numbers(one, new(big.Int)), ErrMalformed},
		{"a negative number", sums, numbers(big.NewInt(-1), one), ErrMalformed},
		{"over the order", sums, numbers(all, one), ErrMalformed},

		{"empty", sums, "", ErrMalformed},
		{"DER", sums, string(der), ErrMalformed},
		{"HTML", sums, "<html>\x1b[2J</html>", ErrMalformed},
		{"a bundle", sums, `{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{` + strings.Repeat(" ", 300) + `}}`, ErrMalformed},
		{"long", sums, strings.Repeat("A", 60<<10), ErrMalformed},
		{"a blank", sums, good + " ", ErrMalformed},
		{"a CR", sums, good[:8] + "\r" + good[8:], ErrMalformed},
		{"base64 of URLs", sums, strings.Repeat("_", 96), ErrMalformed},
		{"something behind the sequence", sums, b64(append(bytes.Clone(der), 0)), ErrMalformed},
		{"cut", sums, b64(der[:len(der)-1]), ErrMalformed},
		{"length in two bytes", sums, b64(append([]byte{0x30, 0x81, der[1]}, der[2:]...)), ErrMalformed},
		{"a third number", sums, b64(append(append([]byte{0x30, der[1] + 3}, der[2:]...), 2, 1, 1)), ErrMalformed},
		{"a number with a zero more", sums, b64([]byte{0x30, 7, 2, 2, 0, 1, 2, 1, 1}), ErrMalformed},
		{"two signatures", sums, wrapped + wrapped, ErrMalformed},
		{"minisign's", sums, newSigner(t, "minisign").sign(t, sums), ErrMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := verify(t, ours.verifier(t), tt.sums, map[string]string{"checksums.txt.sig": tt.sig})
			if tt.want == nil {
				require.NoError(t, err)
				assert.Equal(t, selfupdate.Statement{Key: "ecdsa-p256 " + opensslID(t, ours)}, s)
				return
			}
			require.ErrorIs(t, err, tt.want)
			require.ErrorIs(t, err, selfupdate.ErrSignature)
			require.NotErrorIs(t, err, selfupdate.ErrNotFound)
			assert.Equal(t, tt.want == ErrInvalid, isErr(err, ErrInvalid))
			assert.Equal(t, selfupdate.Refused, selfupdate.ClassOf(err))
			plain(t, err, "html", "AAAA")
		})
	}
}

// A signature of the asset vouches for one digest, and for nothing that the
// checksum file says.
func TestECDSAOfTheAsset(t *testing.T) {
	ours := newSigner(t, "openssl")
	const program = "a program"
	sig := ours.sign(t, program)
	d, d512 := digestOf(checksum.SHA256, program), digestOf(checksum.SHA512, program)
	list := d.Hex() + "  app\n"
	for _, tt := range []struct {
		name, sums string
		sigs       map[string]string
		want       error
	}{
		{"good", "# version: v2\n" + list, map[string]string{"app.sig": sig}, nil},
		{"of another asset", strings.Replace(list, d.Hex()[:2], "00", 1), map[string]string{"app.sig": sig}, ErrInvalid},
		{"a bad one of the checksum file goes first", list, map[string]string{"app.sig": sig, "checksums.txt.sig": sig}, ErrInvalid},
		{"none at all", list, nil, selfupdate.ErrNotFound},
		{"asset not listed", sums[:64] + "  other\n", map[string]string{"app.sig": sig}, checksum.ErrNotListed},
		{"SHA-512 only", d512.Hex() + "  app\n", map[string]string{"app.sig": sig}, selfupdate.ErrNoChecksum},
		{"malformed", list, map[string]string{"app.sig": "x"}, ErrMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := verify(t, ours.verifier(t), tt.sums, tt.sigs)
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, selfupdate.Statement{Key: "ecdsa-p256 " + opensslID(t, ours), Digest: d}, s)
		})
	}
	_, err := verify(t, ours.verifier(t), list, nil)
	assert.ErrorContains(t, err, "checksums.txt.sig")
}

func TestECDSAKeys(t *testing.T) {
	a, b := newSigner(t, "openssl"), newSigner(t, "openssl")
	dir := t.TempDir()
	openssl := func(args ...string) string {
		tool(t, dir, "openssl", append(args, "-out", "out")...)
		return read(t, dir, "out")
	}
	public := func(private string) string {
		write(t, dir, "private", private)
		return openssl("pkey", "-in", "private", "-pubout")
	}
	p384 := openssl("ecparam", "-name", "secp384r1", "-genkey", "-noout")
	k1 := openssl("ecparam", "-name", "secp256k1", "-genkey", "-noout")
	rsa := openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048")
	ed := openssl("genpkey", "-algorithm", "ED25519")
	write(t, dir, "ours", read(t, a.dir, "key"))
	compressed := openssl("ec", "-in", "ours", "-pubout", "-conv_form", "compressed")
	explicit := openssl("ec", "-in", "ours", "-pubout", "-param_enc", "explicit")
	require.NotEqual(t, a.pub, compressed)
	lines := strings.SplitAfter(a.pub, "\n")
	offCurve := strings.Replace(a.pub, lines[2], strings.Repeat("A", 10)+lines[2][10:], 1)
	for _, tt := range []struct {
		name string
		keys []string
		ok   bool
	}{
		{"one", []string{a.pub}, true},
		{"without the last newline", []string{strings.TrimSpace(a.pub)}, true},
		{"CRLF", []string{strings.ReplaceAll(a.pub, "\n", "\r\n")}, true},
		{"by genpkey", []string{public(openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")), a.pub}, true},
		{"two", []string{b.pub, a.pub}, true},

		{"none", nil, false},
		{"empty", []string{""}, false},
		{"the second empty", []string{a.pub, ""}, false},
		{"two in one", []string{a.pub + b.pub}, false},
		{"a damaged one before", []string{strings.Replace(b.pub, "END", "DNE", 1) + a.pub}, false},
		{"text before", []string{"x\n" + a.pub}, false},
		{"text behind", []string{a.pub + "x"}, false},
		{"a header", []string{strings.Replace(a.pub, "\n", "\nA: b\n\n", 1)}, false},
		{"the private key", []string{read(t, a.dir, "key")}, false},
		{"a block with ESC in its name", []string{strings.ReplaceAll(a.pub, "PUBLIC", "\x1b[2J")}, false},
		{"P-384", []string{public(p384)}, false},
		{"secp256k1", []string{public(k1)}, false},
		{"RSA", []string{public(rsa)}, false},
		{"Ed25519", []string{public(ed)}, false},
		{"compressed", []string{compressed}, false},
		{"explicit parameters", []string{explicit}, false},
		{"not on the curve", []string{offCurve}, false},
		{"minisign's", []string{newSigner(t, "minisign").pub}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			keys := make([][]byte, len(tt.keys))
			for i, k := range tt.keys {
				keys[i] = []byte(k)
			}
			v, err := ECDSA(keys...)
			if !tt.ok {
				require.ErrorIs(t, err, ErrKey)
				plain(t, err)
				return
			}
			require.NoError(t, err)
			_, err = verify(t, v, sums, map[string]string{"checksums.txt.sig": a.sign(t, sums)})
			require.NoError(t, err)
		})
	}
	_, err := hex.DecodeString(opensslID(t, a))
	require.NoError(t, err)
}
