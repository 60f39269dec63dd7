package checksum

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLookup(t *testing.T) {
	for _, tt := range []struct {
		name, text, asset string
		algs              []Algorithm
		want              string
	}{
		{"exact goes before a directory", alt64 + "  old/app\n" + hex64 + "  app\n" + alt64 + "  new/app\n", "app", nil, hex64},
		{"dist/", hex64 + "  dist/app\n" + alt64 + "  dist/app.sbom\n", "app", nil, hex64},
		{"bin/", hex64 + "  bin/app\n", "app", nil, hex64},
		{"./", hex64 + "  ./app\n", "app", nil, hex64},
		{".//", hex64 + "  .//app\n", "app", nil, hex64},
		{"./dist/", hex64 + "  ./dist/app\n" + hex128 + "  dist/app\n", "app", nil, hex64},
		{"any directory", hex64 + "  /home/ci/target/x86_64 linux/release/app\n", "app", nil, hex64},
		{"one path in two lines", hex64 + "  dist/app\n" + hex64 + "  dist/app\n", "app", nil, hex64},
		{"asked with a directory", hex64 + "  dist/app\n" + alt64 + "  bin/app\n", "dist/app", nil, hex64},
		{"SHA-512 where there is nothing else", hex128 + "  app\n", "app", nil, hex128},
		{"SHA-512 asked for", hex64 + "  app\n" + hex128 + "  app\n", "app", []Algorithm{SHA512}, hex128},
		{"SHA-512 asked for first", hex64 + "  app\n" + hex128 + "  app\n", "app", []Algorithm{SHA512, SHA256}, hex128},
		{"second choice", hex64 + "  app\n", "app", []Algorithm{SHA512, SHA256}, hex64},
		{"conflict elsewhere", hex64 + "  app\n" + hex64 + "  b\n" + alt64 + "  b\n", "app", nil, hex64},
		{"similar names", alt64 + "  app.sbom\n" + alt64 + "  my-app\n" + alt64 + "  APP\n" + hex64 + "  app\n", "app", nil, hex64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Parse([]byte(tt.text))
			require.NoError(t, err)
			got, err := f.Lookup(tt.asset, tt.algs...)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got.Hex())
		})
	}
}

func TestLookupRefused(t *testing.T) {
	for _, tt := range []struct {
		name, text, asset string
		algs              []Algorithm
		want              error
		line              int
		says              string
	}{
		{"not there", hex64 + "  a\n" + hex64 + "  b\n", "app", nil, ErrNotListed, 0, `"app" among 2 lines`},
		{"names lack the version", hex64 + "  app_linux.tgz\n" + hex64 + "  app_darwin.tgz\n", "app_1.2.3_linux.tgz", nil, ErrNotListed, 0, `"app_1.2.3_linux.tgz"`},
		{"sidecar of another file", hex64 + " app.RELEASE.2031-01-02T03-04-05Z\n", "app", nil, ErrNotListed, 0, `names only "app.RELEASE.2031-01-02T03-04-05Z"`},
		{"sum of standard input", hex64 + "  -\n", "app", nil, ErrNotListed, 0, `names only "-"`},
		{"prefix of a name", hex64 + "  app.sbom\n", "app", nil, ErrNotListed, 0, ""},
		{"part of a name", hex64 + "  dist/my-app\n", "app", nil, ErrNotListed, 0, ""},
		{"other case", hex64 + "  App\n", "app", nil, ErrNotListed, 0, ""},
		{"directory", hex64 + "  app/\n", "app", nil, ErrNotListed, 0, ""},
		{"no name", hex64 + "  dist/\n", "", nil, ErrNotListed, 0, ""},
		{"description", hex64 + " linux x86_64\n", "linux", nil, ErrNotListed, 0, ""},
		{"two paths", hex64 + "  old/app\n" + alt64 + "  new/app\n", "app", nil, ErrAmbiguousName, 2, `"new/app" here, "old/app" on line 1`},
		{"two paths, one digest", hex64 + "  old/app\n" + hex64 + "  new/app\n", "app", nil, ErrAmbiguousName, 2, ""},
		{"two paths, one of them weak", digits(32) + "  old/app\n" + hex64 + "  new/app\n", "app", nil, ErrAmbiguousName, 2, ""},
		{"conflict", hex64 + "  app\n" + hex64 + "  b\n" + alt64 + " *app\n", "app", nil, ErrConflict, 3, `on line 1`},
		{"conflict after ./", hex64 + "  ./app\n" + alt64 + "  app\n", "app", nil, ErrConflict, 2, ""},
		{"conflict in a directory", hex64 + "  dist/app\n" + alt64 + "  dist/app\n", "app", nil, ErrConflict, 2, ""},
		{"conflict of the other algorithm", hex64 + "  app\n" + hex128 + "  app\n" + alt128 + "  app\n", "app", []Algorithm{SHA256}, ErrConflict, 3, ""},
		{"MD5 and SHA-1 only", digits(32) + "  app\n" + digits(40) + "  app\n" + hex64 + "  b\n", "app", nil, ErrWeakOnly, 1, ""},
		{"MD5 tag only", "MD5 (app) = " + digits(32) + "\n", "app", nil, ErrWeakOnly, 1, ""},
		{"SHA3-256 section only", "# SHA3-256\n" + hex64 + "  app\n", "app", nil, ErrWeakOnly, 2, ""},
		{"weak exact, strong elsewhere", digits(40) + "  app\n" + hex64 + "  dist/app\n", "app", nil, ErrWeakOnly, 1, ""},
		{"SHA-256 demanded", "\n" + hex128 + "  app\n", "app", []Algorithm{SHA256}, ErrAlgorithm, 2, "sha512 only"},
		{"SHA-512 demanded", hex64 + "  app\n", "app", []Algorithm{SHA512}, ErrAlgorithm, 1, "sha256 only"},
		{"no algorithm", hex64 + "  app\n", "app", []Algorithm{0, 77}, ErrAlgorithm, 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Parse([]byte(tt.text))
			require.NoError(t, err)
			got, err := f.Lookup(tt.asset, tt.algs...)
			require.ErrorIs(t, err, tt.want)
			assert.True(t, got.IsZero())
			var at *Error
			require.ErrorAs(t, err, &at)
			assert.Equal(t, tt.line, at.Line)
			assert.Contains(t, err.Error(), tt.says)
			assertPlain(t, err)
		})
	}
}

func TestLookupSidecarWeakOnly(t *testing.T) {
	f, err := ParseSidecar([]byte(digits(32)+"\n"), "app")
	require.NoError(t, err)
	_, err = f.Lookup("app")
	require.ErrorIs(t, err, ErrWeakOnly)
	assert.Empty(t, f.Entries())
}

func TestLookupZeroFile(t *testing.T) {
	_, err := new(File).Lookup("app")
	require.ErrorIs(t, err, ErrNotListed)
}

func TestErrorTextsHoldNoRawBytes(t *testing.T) {
	nasty := []string{"\x1b[31m", "\xff", "\x00", "\u202e", "é", "\x7f", "\a", "\u2028"}
	shapes := []string{"%", hex64 + "  %", hex64 + " *old/%\n" + hex64 + " *%", "SHA256 (%) = " + alt64 + "\n" + hex64 + "  %",
		"SHA256 (a) = %", "% (a) = b", "%" + hex64, hex64[1:] + "%  a", `\` + hex64 + `  %\%`, "sha256:%", "# version: %\n" + hex64 + "  %",
		digits(32) + "  %", hex64 + "  x/%\n" + hex64 + "  y/%", hex64 + "  " + strings.Repeat("%", 500)}
	for _, n := range nasty {
		for _, s := range shapes {
			text := strings.ReplaceAll(s, "%", n)
			for _, asset := range []string{n, strings.Repeat(n, 100), "app"} {
				f, err := ParseSidecar([]byte(text), asset)
				if err == nil {
					_, err = f.Lookup(asset, SHA512)
				}
				require.Error(t, err)
				assertPlain(t, err)
			}
		}
	}
}

func TestQuoteLength(t *testing.T) {
	assert.Equal(t, `"app"`, quote("app"))
	assert.Len(t, quote(strings.Repeat("a", 78)), 80)
	assert.Len(t, quote(strings.Repeat("a", 79)), 80)
	assert.Len(t, quote(strings.Repeat("é", 500)), 80)
}
