package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

const program = "\x7fELF, or so it says"

// unpack reads the program of an archive to its end.
func unpack(t testing.TB, u Unpacker, data []byte, name string) (string, error) {
	t.Helper()
	r, err := u.Unpack(t.Context(), bytes.NewReader(data), int64(len(data)), name)
	if err != nil {
		require.Nil(t, r)
		return "", err
	}
	got, err := io.ReadAll(r)
	if cerr := r.Close(); err == nil {
		require.NoError(t, cerr)
	}
	return string(got), err
}

// plain fails the test when an error's text is not fit for a terminal or a log.
func plain(t testing.TB, err error) {
	t.Helper()
	require.Less(t, len(err.Error()), 600)
	for _, r := range err.Error() {
		require.True(t, r >= 0x20 && r < 0x7f, "%q", err)
	}
}

func TestUnpack(t *testing.T) {
	app := file{name: "app", content: program, mode: 0o755}
	readme := file{name: "README.md", content: "read me", mode: 0o644}
	in := func(name string) file { return file{name: name, content: program} }
	files := map[string]string{"app": program, "README.md": "read me", "sub/app2": "another"}
	for _, tt := range []struct {
		name  string
		data  []byte
		entry string
	}{
		{"tar.gz", gz(t, tarOf(t, readme, app)), ""},
		{"tar.gz, first", gz(t, tarOf(t, app, readme)), ""},
		{"tar.zst", zst(t, tarOf(t, readme, app)), ""},
		{"zip", zipOf(t, readme, app), ""},
		{"gz", gz(t, []byte(program)), ""},
		{"zst", zst(t, []byte(program)), ""},
		{"gz of two members", append(gz(t, []byte(program[:4])), gz(t, []byte(program[4:]))...), ""},
		{"zst of two frames", append(zst(t, []byte(program[:4])), zst(t, []byte(program[4:]))...), ""},
		{"subdirectory", gz(t, tarOf(t, file{name: "app-v2/", kind: tar.TypeDir}, in("app-v2/app"))), ""},
		{"directory of that name", gz(t, tarOf(t, file{name: "app/", kind: tar.TypeDir}, in("app/app"))), ""},
		{"./", gz(t, tarOf(t, in("./app"))), ""},
		{".exe", zipOf(t, in("app.exe")), ""},
		{"directories in a zip", zipOf(t, file{name: "app/"}, in("app/app")), ""},
		{"entry", gz(t, tarOf(t, in("a/app"), file{name: "b/app", content: "other"})), "a/app"},
		{"entry with ./", gz(t, tarOf(t, in("./a/app"), file{name: "b/app", content: "other"})), "./a/app"},
		{"entry in a zip", zipOf(t, file{name: "b/app", content: "other"}, in("a/app")), "a/app"},
		{"entry without a slash", gz(t, tarOf(t, in("x/tool"), app)), "tool"},
		{"entry beside its .exe", zipOf(t, app, file{name: "app.exe", content: "other"}), "app"},
		{"odd entries that are not ours", gz(t, tarOf(t, file{name: "../x", content: "x"}, file{name: "/y", kind: tar.TypeSymlink, link: "/etc"}, file{name: "z", kind: tar.TypeChar}, file{name: "x\x1b[2J"}, app)), ""},

		{"GNU tar", made(t, files, "tar -czf out app README.md sub"), ""},
		{"GNU tar, POSIX", made(t, files, "tar --format=posix -czf out ./app ./sub"), ""},
		{"GNU tar, ustar", made(t, files, "tar --format=ustar -czf out ./app ./sub"), ""},
		{"GNU tar, another's sparse file", made(t, files, "truncate -s 50M big; printf x >>big; tar --sparse --format=posix -czf out big app"), ""},
		{"gzip", made(t, files, "gzip -9 <app >out"), ""},
		{"zstd -19", made(t, files, "tar -cf x app sub; zstd -q -19 <x >out"), ""},
		{"zstd with a checksum", made(t, files, "zstd -q --check -o out app"), ""},
		{"Info-ZIP", made(t, files, "zip -qr x app README.md sub; mv x.zip out"), ""},
		{"Info-ZIP, stored", made(t, files, "zip -q0 x app; mv x.zip out"), ""},
		{"Info-ZIP with a comment", made(t, files, "echo comment | zip -qz x app; mv x.zip out"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := unpack(t, Unpacker{Entry: tt.entry}, tt.data, "app")
			require.NoError(t, err)
			assert.Equal(t, program, got)
		})
	}
}

func TestUnpackRefused(t *testing.T) {
	app := file{name: "app", content: program}
	good, goodZip := gz(t, tarOf(t, app)), zipOf(t, app)
	of := func(kind byte, link string) []byte {
		return gz(t, tarOf(t, file{name: "x", content: "x"}, file{name: "app", kind: kind, link: link}))
	}
	end := func(data []byte, at int, value uint16) []byte { // a number in a zip's end record
		b := bytes.Clone(data)
		binary.LittleEndian.PutUint16(b[len(b)-endSize+at:], value)
		return b
	}
	flip := func(data []byte, i int) []byte {
		b := bytes.Clone(data)
		b[(len(b)+i)%len(b)] ^= 1
		return b
	}
	sparse := "truncate -s 50M app; printf x >>app; tar --sparse "
	many := make([]file, 60_000)
	for i := range many {
		many[i].name = fmt.Sprint(i)
	}
	manyZip := zipOf(t, append(many, app)...)
	files := map[string]string{"app": program}
	for _, tt := range []struct {
		name  string
		data  []byte
		entry string
		text  string
	}{
		{"symbolic link", of(tar.TypeSymlink, "x"), "", "no regular file"},
		{"hard link", of(tar.TypeLink, "x"), "", "no regular file"},
		{"character device", of(tar.TypeChar, ""), "", "no regular file"},
		{"block device", of(tar.TypeBlock, ""), "", "no regular file"},
		{"fifo", of(tar.TypeFifo, ""), "", "no regular file"},
		{"directory", of(tar.TypeDir, ""), "", "there is no file"},
		{"not in it", gz(t, tarOf(t, file{name: "other"})), "", "there is no file"},
		{"not at that path", gz(t, tarOf(t, app)), "bin/app", "there is no file"},
		{"empty tar", gz(t, tarOf(t)), "app", ""}, // zeros, which are no program
		{"two", gz(t, tarOf(t, app, app)), "", "two files"},
		{"two in two directories", gz(t, tarOf(t, file{name: "a/app"}, file{name: "b/app"})), "", "two files"},
		{"a link of that name behind it", gz(t, tarOf(t, app, file{name: "app", kind: tar.TypeSymlink, link: "/x"})), "", "two files"},
		{"the same path in other words", gz(t, tarOf(t, file{name: "bin/app"}, file{name: "bin/.//app"})), "bin/app", "two files"},
		{"with and without .exe", gz(t, tarOf(t, app, file{name: "app.exe"})), "", "two files"},
		{"..", gz(t, tarOf(t, file{name: "../app", content: program})), "", "points out"},
		{".. inside", gz(t, tarOf(t, file{name: "a/../../app", content: program})), "", "points out"},
		{`..\`, gz(t, tarOf(t, file{name: `..\/app`, content: program})), "", "points out"},
		{"absolute", gz(t, tarOf(t, file{name: "/app", content: program})), "", "points out"},
		{"drive", gz(t, tarOf(t, file{name: "C:/app", content: program})), "", "points out"},
		{"ESC in its directory", gz(t, tarOf(t, file{name: "\x1b[2J/../app", content: program})), "", "points out"},
		{"a directory of 100 kB", gz(t, tarOf(t, file{name: "../" + strings.Repeat("x", 100_000) + "/app", content: program})), "", "points out"},
		{"GNU sparse", made(t, nil, sparse+"--format=gnu -czf out app"), "", "sparse"},
		{"PAX sparse 0.0", made(t, nil, sparse+"--format=posix --sparse-version=0.0 -czf out app"), "", "sparse"},
		{"PAX sparse 0.1", made(t, nil, sparse+"--format=posix --sparse-version=0.1 -czf out app"), "", "sparse"},
		{"PAX sparse 1.0", made(t, nil, sparse+"--format=posix --sparse-version=1.0 -czf out app"), "", "sparse"},
		{"wrong CRC of gzip", flip(good, -5), "", "invalid checksum"},
		{"wrong length of gzip", flip(good, -1), "", "invalid checksum"},
		{"wrong checksum of tar", gz(t, changed(t, tarOf(t, app), "app", "apx")), "", "header"},
		{"something behind the gzip", append(bytes.Clone(good), "garbage"...), "", ""},
		{"something behind the zstd", append(zst(t, tarOf(t, app)), "garbage"...), "", ""},
		{"a tar behind the tar", gz(t, append(tarOf(t, app), tarOf(t, app)...)), "", "something follows"},

		{"zip: symbolic link", zipOf(t, file{name: "app", content: "/etc/passwd", mode: 0o120777}), "", "no regular file"},
		{"zip: device", zipOf(t, file{name: "app", mode: 0o020666}), "", "no regular file"},
		{"zip: directory", zipOf(t, file{name: "app/"}), "", "there is no file"},
		{"zip: directory by its mode", zipOf(t, file{name: "app", mode: 0o040755}), "", "there is no file"},
		{"zip: two", zipOf(t, app, app), "", "two files"},
		{"zip: ..", zipOf(t, file{name: "../app", content: program}), "", "points out"},
		{"zip: absolute", zipOf(t, file{name: "/app", content: program}), "", "points out"},
		{"zip: NUL in its directory", changed(t, zipOf(t, file{name: "d@/app", content: program}), "d@", "d\x00"), "", "points out"},
		{"zip: encrypted", made(t, files, "zip -qP secret x app; mv x.zip out"), "", "encrypted"},
		{"zip: zip64", made(t, files, "zip -q -fz x app; mv x.zip out"), "", "zip64"},
		{"zip: wrong CRC", changed(t, goodZip, string(goodZip[14:18]), "\x01\x02\x03\x04"), "", ""},
		{"zip: other content", flip(goodZip, 40), "", ""},
		{"zip: something behind", append(bytes.Clone(goodZip), "garbage"...), "", "something follows"},
		{"zip: something before", append([]byte("PK\x03\x04"), goodZip...), "", "not where it should be"},
		{"zip: 60,000 entries", manyZip, "", "60001 entries"},
		{"zip: 60,000 entries, said to be 1", end(end(manyZip, 10, 1), 8, 1), "", "bytes"},
		{"zip: 2 entries, said to be 1", end(zipOf(t, app, file{name: "x"}), 10, 1), "", "not 1 entries"},
		{"zip: 1 entry, said to be 2", end(goodZip, 10, 2), "", "not 2 entries"},
		{"zip: an end alone, of more", end(zipOf(t), 10, 1), "", "not 1 entries"},
		{"zip: empty", zipOf(t), "", "there is no file"},

		{"nothing", nil, "", "0 bytes"},
		{"three bytes", []byte("\x1f\x8b\x08"), "", "3 bytes"},
		{"a program", []byte(program), "", "neither gzip nor zstd nor zip"},
		{"HTML", []byte("<html>\x1b[2J"), "", "neither gzip nor zstd nor zip"},
		{"tar", tarOf(t, app), "", "neither gzip nor zstd nor zip"},
		{"xz", []byte("\xfd7zXZ\x00\x00"), "", "neither gzip nor zstd nor zip"},
		{"zstd window of 64 MiB", made(t, nil, "head -c 70M /dev/zero | zstd -q --long=26 >out"), "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := unpack(t, Unpacker{Entry: tt.entry}, tt.data, "app")
			if tt.name == "empty tar" {
				require.NoError(t, err)
				assert.Empty(t, strings.Trim(got, "\x00"))
				return
			}
			require.ErrorIs(t, err, selfupdate.ErrFormat)
			assert.ErrorContains(t, err, tt.text)
			assert.Equal(t, selfupdate.Refused, selfupdate.ClassOf(err))
			plain(t, err)
		})
	}
}

// An archive that was cut anywhere is refused, whatever came out of it before.
func TestUnpackTruncated(t *testing.T) {
	app := file{name: "app", content: program}
	for name, data := range map[string][]byte{
		"tar.gz":  gz(t, tarOf(t, app)),
		"tar.zst": zst(t, tarOf(t, app)),
		"zip":     zipOf(t, app),
		"gz":      gz(t, []byte(program)),
		"zst":     zst(t, []byte(program)),
	} {
		t.Run(name, func(t *testing.T) {
			for n := range len(data) {
				_, err := unpack(t, Unpacker{}, data[:n], "app")
				require.ErrorIs(t, err, selfupdate.ErrFormat, "%d of %d bytes", n, len(data))
			}
			_, err := unpack(t, Unpacker{}, data, "app")
			require.NoError(t, err)
		})
	}
}

func TestUnpackTooMuch(t *testing.T) {
	zeros := string(make([]byte, 1<<20))
	app, big := file{name: "app", content: zeros}, file{name: "big", content: zeros}
	for name, tt := range map[string]struct {
		data []byte
		max  int64 // that is enough
	}{
		"gz":                  {gz(t, []byte(zeros)), 1 << 20},
		"zst":                 {zst(t, []byte(zeros)), 1 << 20},
		"zip":                 {zipOf(t, big, app), 1 << 20},
		"tar.gz, others too":  {gz(t, tarOf(t, big, app)), 2<<20 + 4*512},
		"tar.zst, others too": {zst(t, tarOf(t, big, app)), 2<<20 + 4*512},
		"tar.gz, others last": {gz(t, tarOf(t, app, big)), 2<<20 + 4*512},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := unpack(t, Unpacker{MaxUnpacked: tt.max - 1}, tt.data, "app")
			require.ErrorIs(t, err, selfupdate.ErrTooLarge)
			require.NotErrorIs(t, err, selfupdate.ErrFormat)
			plain(t, err)
			got, err := unpack(t, Unpacker{MaxUnpacked: tt.max}, tt.data, "app")
			require.NoError(t, err)
			assert.Len(t, got, 1<<20)
		})
	}
	_, err := unpack(t, Unpacker{MaxUnpacked: -1}, nil, "app")
	require.Error(t, err)
}

// failing is an archive on a disk that can't be read from some byte on.
type failing struct {
	io.ReaderAt
	from int64
}

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.from {
		return 0, &os.PathError{Op: "read", Path: "archive", Err: errors.New("input/output error")}
	}
	return f.ReaderAt.ReadAt(p, off)
}

// A disk that fails is this machine's fault, not the archive's.
func TestUnpackReadError(t *testing.T) {
	app := file{name: "app", content: strings.Repeat(program, 100_000)}
	for name, data := range map[string][]byte{
		"tar.gz": made(t, map[string]string{"app": app.content}, "tar -cf x app; gzip -1 <x >out"),
		"zst":    zst(t, []byte(app.content)),
		"zip":    zipOf(t, app),
	} {
		for _, from := range []int64{0, 100, int64(len(data)) / 2} {
			t.Run(fmt.Sprint(name, " from ", from), func(t *testing.T) {
				r, err := Unpacker{}.Unpack(t.Context(), failing{bytes.NewReader(data), from}, int64(len(data)), "app")
				if err == nil {
					_, err = io.Copy(io.Discard, r)
				}
				require.ErrorContains(t, err, "input/output error")
				assert.Equal(t, selfupdate.Local, selfupdate.ClassOf(err))
			})
		}
	}
}

func TestUnpackCancelled(t *testing.T) {
	for name, data := range map[string][]byte{
		"tar.gz": gz(t, tarOf(t, file{name: "app", content: program})),
		"zst":    zst(t, []byte(program)),
		"zip":    zipOf(t, file{name: "app", content: program}),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			r, err := Unpacker{}.Unpack(ctx, bytes.NewReader(data), int64(len(data)), "app")
			if err == nil {
				_, err = io.Copy(io.Discard, r)
			}
			require.ErrorIs(t, err, context.Canceled)
			assert.Zero(t, selfupdate.ClassOf(err))
		})
	}
}
