package checksum_test

import (
	"errors"
	"fmt"

	"github.com/metal-stack/selfreconcile/checksum"
)

func ExampleParse() {
	list := []byte(`# version: v1.4.2
ffe7f1ba6e9d0d107dac522419ee2c8107eb8f67823a3c5e10a07206b2892de4  dist/acmectl_linux_amd64
5d1ad28043afac3469f557926b97d0148a27d0a447a66456832af0bb5bb5ec05  dist/acmectl_linux_arm64
`)
	f, err := checksum.Parse(list)
	if err != nil {
		fmt.Println(err)
		return
	}
	digest, err := f.Lookup("acmectl_linux_amd64")
	fmt.Println(f.Version(), digest, err)

	_, err = f.Lookup("acmectl_darwin_arm64")
	fmt.Println(errors.Is(err, checksum.ErrNotListed), err)
	// Output:
	// v1.4.2 sha256:ffe7f1ba6e9d0d107dac522419ee2c8107eb8f67823a3c5e10a07206b2892de4 <nil>
	// true no entry for "acmectl_darwin_arm64" among 2 lines
}

func ExampleParseSidecar() {
	sidecar := []byte("8492FA6E45651B24A86639369A796D6821ED61FC45DFD8BB2448288C0BEAAB2D\r\n")
	f, err := checksum.ParseSidecar(sidecar, "fwagent-linux-amd64")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(f.Lookup("fwagent-linux-amd64", checksum.SHA256))

	_, err = checksum.Parse(sidecar)
	fmt.Println(err)
	// Output:
	// sha256:8492fa6e45651b24a86639369a796d6821ed61fc45dfd8bb2448288c0beaab2d <nil>
	// line 1: digest without a name: accepted only in a file of its own beside the asset, such as <asset>.sha256
}

func ExampleParseDigest() {
	want, err := checksum.ParseDigest("sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
	if err != nil {
		fmt.Println(err)
		return
	}
	h := want.Algorithm().New() // write the file to it
	fmt.Println(want.Equal(checksum.Of(want.Algorithm(), h)))

	_, err = checksum.ParseDigest("sha256:e3b0")
	fmt.Println(err)
	// Output:
	// true
	// malformed digest: 4 characters, want 64 (SHA-256) or 128 (SHA-512)
}
