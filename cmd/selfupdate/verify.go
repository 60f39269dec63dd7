package main

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// verifyFlags are the arguments of the command.
type verifyFlags struct {
	sums, name, payload string
	named               bool // --name was given
	digest              checksum.Digest
	keys                keyFiles
	version             string // that the signature must state
}

func verifyCommand(e *env) *command {
	var v verifyFlags
	c := &command{
		name: "verify", summary: "is this file what a checksum file lists?",
		forms: []string{"verify --sums FILE [--key FILE… [--version V]] [--name ASSET] PAYLOAD", "verify --digest sha256:HEX PAYLOAD"},
		about: "Compares PAYLOAD with its digest in FILE: its SHA-256, else its SHA-512. The accepted shapes of FILE are those of " +
			"sha256sum, shasum, openssl and BSD; weaker algorithms never count. PAYLOAD - is standard input.\n\n" +
			"A FILE named ASSET.sha256, .sha512, .sha256sum or .sha512sum belongs to that one asset and may hold the digest alone; so " +
			"may a file with such an ending under any name when --name says the asset, and any file that is only one sha256:HEX. " +
			"Any other file is a list.\n\n" +
			"With --key FILE must be signed, as for \"selfupdate apply\": its signature is FILE.minisig or FILE.sig beside it.\n\n" +
			"A checksum file from the same place as the payload, unsigned, proves that nothing broke on the way, not who made it.",
		flags: e.newFlags("verify"),
		order: append([]string{"Flags:", "sums", "key", "version", "name", "digest"}, shared[:]...),
		example: "selfupdate verify --sums checksums.txt metalctl-linux-amd64\n" +
			"selfupdate verify --sums metalctl-linux-amd64.sha512 metalctl-linux-amd64\n" +
			"selfupdate verify --sums checksums.txt --name metalctl-linux-amd64 /usr/local/bin/metalctl",
	}
	c.flags.StringVar(&v.sums, "sums", "", "the checksum `FILE` (this or --digest is required)")
	c.flags.Var(&v.keys, "key", "`KEY` is a file with a public key, minisign's or a PEM block of ECDSA P-256; given several times, one of them must have signed FILE (default: FILE need not be signed)")
	c.flags.StringVar(&v.version, "version", "", "with --key, the version `V` that the signature must state (default any, or none)")
	c.flags.StringVar(&v.name, "name", "", "the `ASSET` to look up in FILE (default the base name of PAYLOAD)")
	c.flags.TextVar(&v.digest, "digest", checksum.Digest{}, "the `DIGEST` that PAYLOAD must have: sha256:HEX or sha512:HEX (default: what FILE lists)")
	c.run = func(ctx context.Context, args []string) error {
		if err := v.check(given(c.flags), args); err != nil {
			return err
		}
		return v.run(ctx, e)
	}
	return c
}

func (v *verifyFlags) check(set map[string]bool, args []string) error {
	switch {
	case len(args) == 0:
		return usagef("no PAYLOAD: the file to verify")
	case len(args) > 1:
		return usagef("unexpected argument %q: one PAYLOAD at a time", args[1])
	case set["sums"] == set["digest"]:
		return usagef("one of --sums FILE and --digest sha256:HEX says what PAYLOAD should be")
	case set["digest"] && v.digest.IsZero():
		return usagef("--digest is empty")
	case set["sums"] && v.sums == "":
		return usagef("--sums is empty")
	case set["key"] && !set["sums"]:
		return usagef("--key is for --sums")
	case set["version"] && (!set["key"] || v.version == ""):
		return usagef("--version V is for --key")
	case set["digest"] && set["name"]:
		return usagef("--name is for --sums")
	case set["name"] && v.name == "":
		return usagef("--name is empty")
	case args[0] == "-" && set["sums"] && !set["name"]:
		return usagef("standard input has no name: add --name ASSET")
	}
	v.payload, v.named = args[0], set["name"]
	if v.name == "" {
		v.name = filepath.Base(v.payload)
	}
	return nil
}

// verified is the result of the command.
type verified struct {
	Verified bool            `json:"verified"`
	Payload  string          `json:"payload"`
	Asset    string          `json:"asset,omitempty"`
	Sums     string          `json:"sums,omitempty"`
	Digest   checksum.Digest `json:"digest"`
	Size     int64           `json:"size"`             // in bytes
	Policy   string          `json:"policy,omitempty"` // which key, which version
}

func (v *verifyFlags) run(ctx context.Context, e *env) error {
	want, source, trust := v.digest, "--digest", ""
	res := verified{Verified: true, Payload: v.payload}
	if v.sums != "" {
		var err error
		if want, trust, err = v.lookup(ctx); err != nil {
			return err
		}
		source = fmt.Sprintf("%s lists for %s", v.sums, v.name)
		res.Asset, res.Sums = v.name, v.sums
	}
	got, n, err := v.hash(ctx, e, want.Algorithm())
	if err != nil {
		return err
	}
	if !got.Equal(want) {
		if v.sums == "" {
			source = "--digest says"
		}
		return fmt.Errorf("%s: %w: it has %v, but %s %v", v.payload, selfupdate.ErrDigestMismatch, got, source, want)
	}
	res.Digest, res.Size, res.Policy = got, n, strings.TrimSpace(trust)
	return e.result(res, fmt.Sprintf("ok: %s (%s) is what %s: %v\n", v.payload, size(n), strings.Replace(source, "--digest", "--digest says", 1), got)+trust)
}

// lookup returns the digest that the checksum file has for the asset, and who
// signed it where that is asked.
func (v *verifyFlags) lookup(ctx context.Context) (checksum.Digest, string, error) {
	data, err := readSmall(v.sums, checksum.MaxSize)
	if err != nil {
		return checksum.Digest{}, "", fmt.Errorf("read checksum file: %w", err)
	}
	if len(v.keys) > 0 {
		return v.signed(ctx, data)
	}
	_, d, err := v.parse(data)
	return d, "", err
}

func (v *verifyFlags) parse(data []byte) (*checksum.File, checksum.Digest, error) {
	list, err := checksum.ParseNamed(data, filepath.Base(v.sums), v.name, v.named)
	if errors.Is(err, checksum.ErrBareDigest) && !v.named { // whoever names both files means this one, if it says its algorithm
		list, err = checksum.ParseNamed(data, "", v.name, true)
	}
	return v.find(list, err)
}

// parseSigned is parse for a file whose signature is to count: as for apply, that is of
// names and their digests, never of a digest alone.
func (v *verifyFlags) parseSigned(data []byte) (*checksum.File, checksum.Digest, error) {
	list, err := checksum.Parse(data)
	if errors.Is(err, checksum.ErrBareDigest) {
		err = errors.New("a digest without a name, which is signed for no asset: sign what sha256sum writes")
	}
	return v.find(list, err)
}

func (v *verifyFlags) find(list *checksum.File, err error) (*checksum.File, checksum.Digest, error) {
	var d checksum.Digest
	if err == nil {
		d, err = list.Lookup(v.name)
	}
	if err != nil {
		return nil, checksum.Digest{}, fmt.Errorf("%s: %w for %s: %w", v.sums, selfupdate.ErrNoChecksum, v.name, err)
	}
	return list, d, nil
}

// readSmall reads a file, but not more than one byte over max.
func readSmall(path string, max int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, max+1))
}

// hash returns the digest and the size of the payload, which is never in memory as
// a whole.
func (v *verifyFlags) hash(ctx context.Context, e *env, alg checksum.Algorithm) (checksum.Digest, int64, error) {
	total := int64(-1)
	r := e.stdin
	if v.payload != "-" {
		f, err := os.Open(v.payload)
		if err != nil {
			return checksum.Digest{}, 0, err
		}
		defer func() { _ = f.Close() }()
		if fi, err := f.Stat(); err == nil && fi.Mode().IsRegular() {
			total = fi.Size()
		}
		r = f
	}
	p := e.progress()
	if total >= 0 && total < bigFile {
		p = nil
	}
	defer p.finish()
	h := alg.New()
	n, err := copyHash(ctx, h, r, func(done int64) { p.update(done, total) })
	if err != nil {
		return checksum.Digest{}, 0, fmt.Errorf("read %s: %w", v.payload, err)
	}
	return checksum.Of(alg, h), n, nil
}

const bigFile = 32 << 20 // bytes from which hashing takes long enough to show it

func copyHash(ctx context.Context, h hash.Hash, r io.Reader, update func(done int64)) (n int64, err error) {
	buf := make([]byte, 256<<10)
	for {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		k, err := r.Read(buf)
		_, _ = h.Write(buf[:k]) // never fails
		n += int64(k)
		update(n)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}
