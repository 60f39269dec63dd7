// Package selfreconcile is the root of a module with which a program brings its
// own file, or another program's, to the version that it is told: download,
// verify, replace in one step, keep the previous one, and go back to it when the new
// one does not prove itself. It was made for controllers on machines that nobody can walk to, such as
// firewall-controller, and for CLIs such as metalctl.
//
// There is no code in this package. Start with [selfupdate.New] in
// github.com/metal-stack/selfreconcile/selfupdate and a release from one of the
// sources; examples/firewall-controller is a controller that does so, and
// "make demo" shows it at work.
//
// # Packages for importers
//
//   - selfupdate: the core. The [selfupdate.Updater] with Plan, Apply, Rollback
//     and Status; Begin, Guard and Confirm for a version on trial, and the Helper
//     that looks after one from outside; the primitives Apply and Rollback; what is
//     trusted; locks, the record on disk, the swap. No network on Unix.
//   - checksum: digests, and the checksum files in which they are published.
//     Imports the standard library only.
//   - signature: releases signed with minisign, or with ECDSA keys as cosign makes
//     them.
//   - archive: a program inside a .tar.gz, .tar.zst or .zip, or compressed.
//   - source/http (package httpsource): a release behind a URL with its checksum
//     file beside it, or behind a template of URLs. What a firewall needs.
//   - source/github (package githubsource): the releases of a repository on
//     GitHub or GitHub Enterprise. A named tag costs no API request.
//   - source/sourcetest: the conformance suite for a source of your own.
//
// # Programs
//
//   - cmd/selfupdate-guard: what systemd runs before and after each start and from a
//     timer, so that even a version that can't be executed, or hangs, is left.
//   - cmd/selfupdate: apply, verify, status, roll back and clear by hand, for an
//     operator or a script.
//   - examples/firewall-controller: a reconcile loop that updates itself first,
//     never stops the working version when that fails, and confirms a new version
//     once it has worked. A module of its own.
//
// # For this module's own use
//
//   - internal/fetch: the one HTTP stack under all sources.
//   - internal/corpus, corpus: the inputs that fuzzing found. internal/hostile: what a
//     server may do to an update, as a test.
//   - bench: this module against others and against the plainest possible update.
//     A module of its own, as is everything below.
//   - tools: linters, the release tool and what measures and checks a release.
//
// # Not there yet
//
// Package delta (patches instead of whole files).
//
// [selfupdate.New]: https://pkg.go.dev/github.com/metal-stack/selfreconcile/selfupdate#New
// [selfupdate.Updater]: https://pkg.go.dev/github.com/metal-stack/selfreconcile/selfupdate#Updater
package selfreconcile
