package main

import (
	"errors"
	"regexp"
	"runtime"
	"strings"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// refusal names the flag that allows what was refused, or what else helps.
func (a advice) refusal(err error, command string) string {
	if errors.Is(err, checksum.ErrBareDigest) {
		if command == "verify" {
			return "if this file belongs to one asset alone, call it ASSET.sha256; under another name with such an ending, add --name ASSET"
		}
		return "if this file belongs to one asset alone, publish it as ASSET.sha256"
	}
	if command != "apply" {
		return ""
	}
	for _, r := range []struct {
		err  error
		text string
	}{
		{selfupdate.ErrInsecure, a.insecure(err)},
		{selfupdate.ErrManaged, "update it with that package manager, or insist with --managed-anyway"},
		{selfupdate.ErrVersionNotBound, "sign with minisign -t 'version:TAG', or with a line \"# version: TAG\" in the checksum file, or put {version} into --asset; --allow-unbound-version lets old releases pass as new ones"},
		{selfupdate.ErrSignature, "do not install this: the release was not signed with the --key that you gave, or somebody changed it"},
		{selfupdate.ErrDigestMismatch, "do not install this file: a cache may be stale, an upload broken, or somebody changed it"},
		{selfupdate.ErrNoChecksum, a.noChecksum(err)},
		{selfupdate.ErrFormat, "the asset must be the program itself, for this machine, or with --unpack an archive of it (--entry says which file); --allow-any-format installs it all the same"},
		{selfupdate.ErrOtherProgram, "if this is meant, --allow-other-program"},
		{selfupdate.ErrVersionMismatch, otherVersion(err)},
		{selfupdate.ErrCannotConfirm, "if somebody else confirms it, --confirmed-outside; else leave out --trial"},
		{selfupdate.ErrHeldBack, "wait for a corrected release, or try again at once with --refresh"},
		{selfupdate.ErrAsset, "name the asset with --asset"},
		{selfupdate.ErrTooLarge, a.tooLarge(err)},
		{selfupdate.ErrResponse, a.response(err)},
	} {
		if errors.Is(err, r.err) {
			return r.text
		}
	}
	return ""
}

// otherVersion: the one that a signature states is no matter of what the program says.
func otherVersion(err error) string {
	if strings.Contains(err.Error(), "the signature ") {
		return "somebody may serve an old release as a new one; or ask for the version as it was signed"
	}
	return "if this is meant, --allow-other-program"
}

// insecure: not everything that came in clear is allowed by a flag. A redirect has
// no sentinel of its own; no URL in the text has a blank.
func (a advice) insecure(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "redirect from https to ") || strings.HasSuffix(text, " (redirect)"):
		return "a redirect from https:// to anything else is never followed, whatever the flags: give the final https:// address"
	case a.plainAPI:
		return "use https:// for --api-url, or let anybody on the way change what the API says with --allow-http"
	case a.pinned:
		return "use https://, or let anybody on the way read what is sent with --allow-http"
	}
	return "http:// lets anybody on the way change what you get: use https://, pin the file with --digest, or accept that with --allow-http"
}

func (a advice) noChecksum(err error) string {
	sums, asset := "--sums-url", "the URL"
	if a.github {
		sums, asset = "--sums", "--asset"
	}
	if errors.Is(err, checksum.ErrNotListed) {
		return "check " + asset + ", or " + sums + "; or pin the file with --digest"
	}
	return "name the right checksum file (" + sums + "), or pin the file with --digest"
}

// tooLarge: --max-size is for the asset alone.
func (a advice) tooLarge(err error) string {
	var failed *selfupdate.Error
	switch {
	case !errors.As(err, &failed): // the API's
		return "that limit is fixed; a public release whose --tag and --asset are named, without --token-file, needs no API"
	case strings.Contains(failed.Step, "checksum file"):
		return "that limit is fixed: " + a.noChecksum(err)
	}
	return "if it may be that large, raise --max-size"
}

var denied = regexp.MustCompile(`\bstatus 40[13]\b`)

// response: what the source says of an answer has no sentinel of its own.
func (a advice) response(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "signed by an unknown authority"), strings.Contains(text, "certificate does not verify"):
		return untrusted()
	case a.github && a.token && denied.MatchString(text):
		return "check the token in --token-file, and its rights on the repository"
	case a.github && denied.MatchString(text):
		return "check OWNER/REPO and --api-url; a private repository needs --token-file"
	}
	return "check the address"
}

// untrusted: crypto/x509 reads no environment where the system verifies.
func untrusted() string {
	const s = "check the address; if the authority is your own, add it to those that this machine trusts"
	switch runtime.GOOS {
	case "windows", "darwin":
		return s
	}
	return s + ", or name a file with its certificate in the environment variable SSL_CERT_FILE"
}

func (a advice) notFound() string {
	if a.github {
		s := "check OWNER/REPO, --tag and --asset, or try again later: a new release's files may still be on their way"
		if !a.token {
			s += "; a private repository needs --token-file"
		}
		return s
	}
	return "check the URL, or try again later: a new release's files may still be on their way"
}

func (a advice) limited() string {
	switch {
	case a.github && !a.token:
		return "try again then, give a --token-file (a higher limit), or name --tag and --asset, which needs no API"
	default:
		return "try again then"
	}
}
