package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"testing"

	"github.com/metal-stack/selfreconcile/internal/corpus"
)

// Whatever comes in: no panic, no more out of it than allowed, an error fit for a
// log. What is taken out and packed again comes out again.
func FuzzUnpack(f *testing.F) {
	corpus.Add(f)
	app := file{name: "bin/app", content: program}
	plainTar := tarOf(f, file{name: "bin/", kind: tar.TypeDir}, app, file{name: "link", kind: tar.TypeSymlink, link: "/x"})
	f.Add(byte(0), zipOf(f, app, file{name: "x", content: "x"}))
	f.Add(byte(0), gz(f, plainTar))
	f.Add(byte(0), zst(f, plainTar))
	f.Add(byte(1), plainTar)
	f.Add(byte(1), tarOf(f, file{name: "../app", content: program}, file{name: "app"}))
	f.Add(byte(1), []byte(program))
	f.Add(byte(2), plainTar)
	const most = 1 << 20
	f.Fuzz(func(t *testing.T, packing byte, data []byte) {
		switch packing % 3 { // so that the tar reader is not behind a checksum that no fuzzer finds
		case 1:
			data = stored(t, data)
		case 2:
			data = zst(t, data)
		}
		n, got, err := unpackAtMost(t, data, most)
		if n > most {
			t.Errorf("%d bytes out of it", n)
		}
		if err != nil {
			plain(t, err)
			return
		}
		again := stored(t, tarOf(t, file{name: "app", content: got}))
		if second, err := unpack(t, Unpacker{}, again, "app"); err != nil || second != got {
			t.Errorf("packed again, %q became %q, %v", got, second, err)
		}
	})
}

func unpackAtMost(t *testing.T, data []byte, most int64) (int64, string, error) {
	r, err := Unpacker{MaxUnpacked: most}.Unpack(t.Context(), bytes.NewReader(data), int64(len(data)), "app")
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = r.Close() }()
	var b bytes.Buffer
	n, err := io.Copy(&b, r)
	return n, b.String(), err
}

// stored is gzip without compression, which costs next to nothing.
func stored(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
