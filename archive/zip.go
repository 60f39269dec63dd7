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
	maxDirectory = 2 << 20 // bytes
)

// zip takes the entry out of a zip file.
func (u Unpacker) zip(ctx context.Context, archive io.ReaderAt, size int64, w wanted) (io.ReadCloser, error) {
	if err := checkDirectory(archive, size); err != nil {
		return nil, err
	}
	z, err := zip.NewReader(archive, size)
	if err != nil {
		return nil, classed(err)
	}
	var found *zip.File
	for _, f := range z.File {
		switch {
		case f.Mode().IsDir() || !w.is(f.Name):
		case found != nil:
			return nil, twice(found.Name, f.Name)
		default:
			found = f
		}
	}
	switch {
	case found == nil:
		return nil, notThere(w)
	case !found.Mode().IsRegular():
		return nil, notRegular(found.Name)
	case unsafe(found.Name):
		return nil, pointsOut(found.Name)
	case found.Flags&1 != 0:
		return nil, refuse("%s is encrypted", quote(found.Name))
	}
	r, err := found.Open()
	if err != nil {
		return nil, classed(err)
	}
	return &entry{&checked{r: &limited{r: &stopping{ctx, r}, left: u.MaxUnpacked}}, r.Close}, nil
}

// The records of a zip file, by APPNOTE.TXT 6.3.10.
const (
	endSize    = 22 // 4.3.16, without its comment
	maxComment = 1<<16 - 1
	locator    = 20 // 4.3.15, right before the end record: zip64
	headerSize = 46 // 4.3.12, without name, extra field and comment
)

// checkDirectory bounds what archive/zip reads into memory. That goes by no number
// in the end record, but reads headers for as long as there are any: a directory of
// half a gigabyte would be a hundred million of its structures.
func checkDirectory(archive io.ReaderAt, size int64) error {
	tail := make([]byte, min(size, locator+endSize+maxComment))
	if _, err := archive.ReadAt(tail, size-int64(len(tail))); err != nil && err != io.EOF {
		return err
	}
	i := bytes.LastIndex(tail[:max(0, len(tail)-endSize+4)], []byte("PK\x05\x06"))
	if i < 0 {
		return refuse("the zip file has no end")
	}
	if i >= locator && bytes.HasPrefix(tail[i-locator:], []byte("PK\x06\x07")) {
		return refuse("zip64 is not accepted")
	}
	le, end := binary.LittleEndian, tail[i:]
	entries, length, offset := int(le.Uint16(end[10:])), int64(le.Uint32(end[12:])), int64(le.Uint32(end[16:]))
	at := size - int64(len(end))
	switch {
	case len(end) != endSize+int(le.Uint16(end[20:])):
		return refuse("something follows the end of the zip file")
	case entries > maxEntries || length > maxDirectory:
		return refuse("a directory of %d entries and %d bytes", entries, length)
	case offset+length != at:
		return refuse("the directory of the zip file is not where it should be")
	}
	directory := make([]byte, length)
	if _, err := archive.ReadAt(directory, offset); err != nil && err != io.EOF {
		return err
	}
	return countHeaders(directory, entries)
}

func countHeaders(directory []byte, want int) error {
	le, n := binary.LittleEndian, 0
	for ; len(directory) >= headerSize && bytes.HasPrefix(directory, []byte("PK\x01\x02")); n++ {
		next := headerSize + int(le.Uint16(directory[28:])) + int(le.Uint16(directory[30:])) + int(le.Uint16(directory[32:]))
		if next > len(directory) {
			break
		}
		directory = directory[next:]
	}
	if n != want || len(directory) > 0 {
		return refuse("the directory of the zip file has not %d entries", want)
	}
	return nil
}
