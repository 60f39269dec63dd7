package archive

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"io"
)

const (
	maxEntries   = 10_000
	maxDirectory = 4 << 20 // bytes
)

// zip takes the entry out of a zip file.
func (u Unpacker) zip(ctx context.Context, archive io.ReaderAt, size int64, w wanted) (io.ReadCloser, error) {
	if err := checkDirectory(archive, size); err != nil {
		return nil, err
	}
	z, err := zip.NewReader(archive, size)
	if err != nil {
		return nil, refuse("zip: %w", err)
	}
	var found *zip.File
	for _, f := range z.File {
		switch {
		case f.Mode().IsDir() || !w.is(f.Name):
		case found != nil:
			return nil, refuse("the archive has two files of that name, %+q and %+q", found.Name, f.Name)
		default:
			found = f
		}
	}
	switch {
	case found == nil:
		return nil, refuse("the archive has no %+q", w.name)
	case unsafe(found.Name):
		return nil, refuse("%+q points out of the archive", found.Name)
	case !found.Mode().IsRegular():
		return nil, refuse("%+q is no regular file in the archive", found.Name)
	case found.Flags&1 != 0:
		return nil, refuse("%+q is encrypted", found.Name)
	}
	r, err := found.Open()
	if err != nil {
		return nil, refuse("zip: %w", err)
	}
	return &entry{&checked{r: &limited{ctx: ctx, r: r, left: u.MaxUnpacked}}, r.Close}, nil
}

// checkDirectory bounds what archive/zip reads into memory: the directory, whose
// size stands in the end record (APPNOTE.TXT, 4.3.16). Zip64, which has a record of
// its own for that, is for archives larger than a program's.
func checkDirectory(archive io.ReaderAt, size int64) error {
	const fixed, maxComment, locator = 22, 1<<16 - 1, 20
	tail := make([]byte, min(size, locator+fixed+maxComment))
	if _, err := archive.ReadAt(tail, size-int64(len(tail))); err != nil && err != io.EOF {
		return err
	}
	i := bytes.LastIndex(tail[:max(0, len(tail)-fixed+4)], []byte("PK\x05\x06"))
	if i < 0 {
		return refuse("zip: no end record")
	}
	if i >= locator && bytes.HasPrefix(tail[i-locator:], []byte("PK\x06\x07")) {
		return refuse("zip: zip64 is not accepted")
	}
	entries, length, offset := binary.LittleEndian.Uint16(tail[i+10:]), binary.LittleEndian.Uint32(tail[i+12:]), binary.LittleEndian.Uint32(tail[i+16:])
	if entries > maxEntries || length > maxDirectory || offset == 1<<32-1 {
		return refuse("zip: a directory of %d entries and %d bytes", entries, length)
	}
	return nil
}
