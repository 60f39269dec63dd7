package archive

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
)

// isTar reports whether b is the header of a tar file: POSIX and GNU have a magic,
// which no program has in that place.
func isTar(b []byte) bool { return len(b) >= 512 && bytes.Equal(b[257:262], []byte("ustar")) }

// openTar finds the entry. Reading it to its end reads the archive to its end.
func openTar(r io.Reader, w wanted) (io.Reader, error) {
	t := tar.NewReader(r)
	h, err := nextMatch(t, w)
	if err == io.EOF {
		return nil, notThere(w)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case sparse(h):
		return nil, refuse("%s is a sparse file", quote(h.Name))
	case h.Typeflag != tar.TypeReg:
		return nil, notRegular(h.Name)
	case unsafe(h.Name):
		return nil, pointsOut(h.Name)
	}
	return &tarEntry{t: t, r: r, w: w, name: h.Name}, nil
}

// sparse files can be a petabyte of nothing in some bytes.
func sparse(h *tar.Header) bool {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// nextMatch returns the next entry of that name, of whatever kind; a directory is none.
func nextMatch(t *tar.Reader, w wanted) (*tar.Header, error) {
	for {
		h, err := t.Next()
		switch {
		case err == io.EOF:
			return nil, io.EOF
		case err != nil:
			return nil, classed(err)
		case h.Typeflag != tar.TypeDir && w.is(h.Name):
			return h, nil
		}
	}
}

type tarEntry struct {
	t    *tar.Reader
	r    io.Reader // under t
	w    wanted
	name string
}

func (e *tarEntry) Read(p []byte) (int, error) {
	n, err := e.t.Read(p)
	if err == nil {
		return n, nil
	}
	if err != io.EOF {
		return n, classed(err)
	}
	h, err := nextMatch(e.t, e.w)
	if err == nil {
		return n, twice(e.name, h.Name)
	}
	if err == io.EOF {
		err = drain(e.r)
	}
	return n, err
}

// drain reads to the checksum behind a tar file, and returns io.EOF. Behind the
// end that the file has there may be zeros; some programs would go on with more.
func drain(r io.Reader) error {
	b := make([]byte, buffer)
	for {
		n, err := r.Read(b)
		if len(bytes.Trim(b[:n], "\x00")) > 0 {
			return refuse("something follows the end of the tar file")
		}
		switch {
		case err == io.EOF:
			return io.EOF
		case err != nil:
			return classed(err)
		}
	}
}
