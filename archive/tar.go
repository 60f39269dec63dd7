package archive

import (
	"archive/tar"
	"bytes"
	"errors"
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
	if errors.Is(err, io.EOF) {
		return nil, refuse("the archive has no %+q", w.name)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case h.Typeflag != tar.TypeReg:
		return nil, refuse("%+q is no regular file in the archive", h.Name)
	case sparse(h):
		return nil, refuse("%+q is a sparse file in the archive", h.Name)
	case unsafe(h.Name):
		return nil, refuse("%+q points out of the archive", h.Name)
	}
	return &tarEntry{t: t, r: r, w: w}, nil
}

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
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		case err != nil:
			return nil, classed(err)
		case h.Typeflag != tar.TypeDir && w.is(h.Name):
			return h, nil
		}
	}
}

type tarEntry struct {
	t *tar.Reader
	r io.Reader
	w wanted
}

func (e *tarEntry) Read(p []byte) (int, error) {
	n, err := e.t.Read(p)
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		return n, classed(err)
	}
	h, err := nextMatch(e.t, e.w)
	if err == nil {
		return n, refuse("the archive has two files of that name, the second is %+q", h.Name)
	}
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if _, err := io.Copy(io.Discard, e.r); err != nil { // to the checksum behind it
		return n, classed(err)
	}
	return n, io.EOF
}
