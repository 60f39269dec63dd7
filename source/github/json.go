package githubsource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/metal-stack/selfreconcile/internal/fetch"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// release is what we read of the API's; go-github's type lacks the digest.
// https://docs.github.com/rest/releases/releases
type release struct {
	ID          int64  `json:"id"`
	Tag         string `json:"tag_name"`
	Draft       bool   `json:"draft"`
	PreRelease  bool   `json:"prerelease"`
	PublishedAt date   `json:"published_at"`
	Assets      assets `json:"assets"`

	partial bool // assets are to be listed
}

type asset struct {
	ID     int64  `json:"id"`
	Name   string `json:"name"`
	State  string `json:"state"`
	Size   int64  `json:"size"`
	Digest string `json:"digest"`
	URL    string `json:"browser_download_url"`
}

// Memory is bounded by the largest object, not by the page: objects are read one
// after the other and only the newest release is kept. 1000 assets are the most
// that GitHub takes, of about 2 KiB each with their uploader, and release notes
// have at most 125,000 characters: that is 3 MiB. A page of 100 releases with 100
// assets each, which exist, is 20 MiB; fetch ends it at 32 MiB.
const (
	maxObject  = 4 << 20
	maxAssets  = 1000
	maxRefusal = 64 << 10 // of a body that isn't data
)

// date is zero when it is unreadable: one such release is no reason to refuse the
// others.
type date struct {
	time.Time
	bad bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *date) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &d.Time); err != nil {
		*d = date{bad: true}
	}
	return nil
}

type assets []asset

// UnmarshalJSON implements json.Unmarshaler.
func (as *assets) UnmarshalJSON(data []byte) error {
	*as = nil
	if string(data) == "null" {
		return nil
	}
	return readList(bytes.NewReader(data), maxAssets, func(a asset) { *as = append(*as, a.bounded()) })
}

// bounded keeps no text that is longer than any real one: such an asset has no
// name any more, and is skipped for that.
func (a asset) bounded() asset {
	if len(a.Name)+len(a.State)+len(a.Digest)+len(a.URL) > 4<<10 {
		return asset{ID: a.ID}
	}
	return a
}

// readList reads an array of at most most objects, one after the other.
func readList[T any](r io.Reader, most int, each func(T)) error {
	in := &bounded{r: r, end: maxObject}
	dec := json.NewDecoder(in)
	if start, err := dec.Token(); err != nil {
		return err
	} else if start != json.Delim('[') {
		return errNotJSON
	}
	for n := 0; dec.More(); n++ {
		if n == most {
			return fmt.Errorf("%w: a list of more than %d", selfupdate.ErrTooLarge, most)
		}
		in.end = dec.InputOffset() + maxObject
		var v *T
		if err := dec.Decode(&v); err != nil {
			return err
		}
		if v == nil { // null
			return errNotJSON
		}
		each(*v)
	}
	_, err := dec.Token() // the bracket, or why there is none
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// readOne reads one object.
func readOne(r io.Reader, v any) error {
	return json.NewDecoder(&bounded{r: r, end: maxObject}).Decode(v)
}

// bounded fails a read beyond end, which moves with the objects that were read.
type bounded struct {
	r        io.Reader
	off, end int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.off >= b.end {
		return 0, fmt.Errorf("%w: an object of more than %d bytes", selfupdate.ErrTooLarge, maxObject)
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.end-b.off)])
	b.off += int64(n)
	return n, err
}

var errNotJSON = fmt.Errorf("%w: not the JSON that the API is to answer", selfupdate.ErrResponse)

// explainJSON turns an error of reading into one of ours. encoding/json's texts
// quote the server.
func explainJSON(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	if err == io.EOF || errors.As(err, &syntax) || errors.As(err, &kind) { // EOF: there was nothing at all
		return errNotJSON
	}
	return fetch.Clean(err)
}

// frugal reads little of the body of an answer that is no data, and closes it:
// go-github reads it whole, and closes only its copy.
type frugal struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (f frugal) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := f.base.RoundTrip(req)
	if err != nil || resp.StatusCode == http.StatusOK {
		return resp, err
	}
	// That it can't be read does not matter: the status is the answer.
	head, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(head))
	return resp, nil
}
