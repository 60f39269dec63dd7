package checksum

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/internal/corpus"
)

func addSeeds(f *testing.F, add func(data []byte, asset string)) {
	cases, data := wildCases(f)
	for i, c := range cases {
		add(data[i], c.Asset)
	}
	for _, s := range []string{
		`\` + hex64 + `  a\\b\nc\rd` + "\n", "# BLAKE2b\n" + hex128 + " **x\n# version: v1\n", "SHA2-512(a)b)= " + hex128,
		"SHA256 (" + alt64 + ") = " + hex64, "\xfe\xff\x00#", "sha512:" + alt128, digits(40) + "\t./dist/a b", "{}", "\uFEFF" + hex64,
	} {
		add([]byte(s), "a")
	}
}

func FuzzParse(f *testing.F) {
	corpus.Add(f)
	addSeeds(f, func(data []byte, asset string) { f.Add(data, asset) })
	f.Fuzz(func(t *testing.T, data []byte, asset string) {
		file, err := Parse(data)
		requireOneError(t, err)
		if err != nil {
			return
		}
		requireSameAfterFormat(t, file)
		requireLookup(t, file, asset)
		for _, e := range file.Entries() {
			requireLookup(t, file, e.Name)
		}
	})
}

func FuzzParseSidecar(f *testing.F) {
	corpus.Add(f)
	addSeeds(f, func(data []byte, asset string) { f.Add(data) })
	const asset = "fwagent-linux-amd64"
	f.Fuzz(func(t *testing.T, data []byte) {
		side, err := ParseSidecar(data, asset)
		requireOneError(t, err)
		list, listErr := Parse(data)
		if listErr == nil {
			require.NoError(t, err, "a sidecar accepts what a list accepts")
			require.Equal(t, list, side)
		}
		if err == nil {
			requireSameAfterFormat(t, side)
			requireLookup(t, side, asset)
		}
	})
}

func FuzzParseDigest(f *testing.F) {
	corpus.Add(f)
	for _, s := range []string{"", hex64, "sha256:" + hex64, "SHA512:" + hex128, "sha512:" + hex64, "md5:", hex64[1:]} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDigest(s)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			require.True(t, d.IsZero())
			assertPlain(t, err)
			return
		}
		for _, form := range []string{d.String(), d.Hex()} {
			again, err := ParseDigest(form)
			require.NoError(t, err)
			require.True(t, d.Equal(again))
		}
	})
}

var sentinels = []error{
	ErrTooLarge, ErrLineTooLong, ErrEmpty, ErrHTML, ErrNUL, ErrEncoding, ErrCarriageReturn, ErrClearSigned, ErrMalformed,
	ErrEscape, ErrBareDigest, ErrColumns, ErrConflict, ErrNotListed, ErrAmbiguousName, ErrWeakOnly, ErrAlgorithm,
}

// requireOneError holds that every refusal has exactly one reason and a plain text.
func requireOneError(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	n := 0
	for _, s := range sentinels {
		if errors.Is(err, s) {
			n++
		}
	}
	require.Equal(t, 1, n, "%v", err)
	var at *Error
	require.ErrorAs(t, err, &at)
	assertPlain(t, err)
}

func requireSameAfterFormat(t *testing.T, f *File) {
	t.Helper()
	want := f.Entries()
	if len(want) == 0 {
		return
	}
	again, err := Parse(Format(want))
	require.NoError(t, err)
	got := again.Entries()
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i].Name, got[i].Name)
		require.True(t, want[i].Digest.Equal(got[i].Digest))
		require.NotEmpty(t, want[i].Name)
	}
}

// requireLookup holds that a digest is only ever that of an entry whose path ends
// in the name.
func requireLookup(t *testing.T, f *File, asset string) {
	t.Helper()
	d, err := f.Lookup(asset)
	requireOneError(t, err)
	if err != nil {
		require.True(t, d.IsZero())
		return
	}
	for _, e := range f.Entries() {
		if name := clean(e.Name); e.Digest.Equal(d) && (name == clean(asset) || base(name) == asset) {
			return
		}
	}
	require.Fail(t, "a digest from nowhere")
}

// TestParseFragments puts lines together from pieces that matter to the parser,
// which bytes at random rarely hit.
func TestParseFragments(t *testing.T) {
	pieces := []string{hex64, alt64, hex128, digits(32), digits(40), digits(8), hex64[1:], "sha256:", "sha512:", "SHA256", "SHA2-512", "MD5",
		" ", " ", "  ", "\t", "*", "**", `\`, `\\`, `\n`, `\r`, "(", ")", "=", ") = ", " (", "a", "app", "./", "dist/", "é", "#", "version:", "v1",
		"\n", "\n", "\r\n", "\r", "# BLAKE2b\n", "\uFEFF", "\n" + hex64 + "  ", "\nSHA256 (", ") = " + alt64 + "\n", "\n\\" + hex64 + "  "}
	rng := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for range 20_000 {
		var text strings.Builder
		if rng.IntN(2) == 0 {
			text.WriteString(hex64 + "  ")
		}
		for range rng.IntN(12) {
			text.WriteString(pieces[rng.IntN(len(pieces))])
		}
		f, err := ParseSidecar([]byte(text.String()), "app")
		requireOneError(t, err)
		if err != nil {
			continue
		}
		accepted++
		requireSameAfterFormat(t, f)
		requireLookup(t, f, "app")
	}
	require.Greater(t, accepted, 1000, "the pieces make too few files")
}
