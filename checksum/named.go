package checksum

import (
	"bytes"
	"strings"
)

// sidecarEndings are those of a file that belongs to one asset.
var sidecarEndings = [...]string{".sha256", ".sha512", ".sha256sum", ".sha512sum"}

// ParseNamed reads a checksum file by its name, for one asset: as
// [ParseSidecar] when it is called <asset>.sha256, .sha512, .sha256sum or
// .sha512sum, else as [Parse]. With chosen, the caller says that the file was
// named for that asset alone (by a person, or a URL of its own): then such an
// ending is enough, and so is a content that is only one digest with its
// algorithm, sha256:HEX, as GitHub's API and OCI registries give it.
func ParseNamed(data []byte, name, asset string, chosen bool) (*File, error) {
	if chosen && oneDigest(data) {
		return ParseSidecar(data, asset)
	}
	for _, ending := range sidecarEndings {
		stem := name[:max(len(name)-len(ending), 0)]
		if strings.EqualFold(name[len(stem):], ending) && (chosen || stem == asset) {
			return ParseSidecar(data, asset)
		}
	}
	return Parse(data)
}

// oneDigest reports whether a file is nothing but one digest with its algorithm.
func oneDigest(data []byte) bool {
	data = bytes.TrimSpace(data)
	if len(data) > len("sha512:")+2*SHA512.Size() || !bytes.Contains(data, []byte(":")) {
		return false
	}
	_, err := ParseDigest(string(data))
	return err == nil
}
