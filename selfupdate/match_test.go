package selfupdate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/internal/corpus"
)

const (
	none      = "none"
	ambiguous = "ambiguous"
)

// checkMatch matches in many orders; want is a name, none or ambiguous.
func checkMatch(t *testing.T, names []string, name string, p Platform, want string) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, uint64(len(names))))
	names = slices.Clone(names)
	for range 4 {
		got, err := MatchAsset(names, name, p)
		if want != none && want != ambiguous {
			require.NoError(t, err)
			require.Equal(t, want, got, "%s %q", p, name)
		} else {
			require.Error(t, err, "%s %q: got %q", p, name, got)
			require.ErrorIs(t, err, ErrAsset)
			require.Equal(t, Refused, ClassOf(err))
			var m *matchError
			require.ErrorAs(t, err, &m)
			require.Equal(t, want == ambiguous, m.ambiguous, "%s %q: %v", p, name, err)
			require.Empty(t, got)
		}
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	}
}

// parsePlatform reads "os/arch", with GOARM=n or a C library behind, and a
// program's name in parentheses.
func parsePlatform(t *testing.T, s string) (p Platform, name string) {
	m := regexp.MustCompile(`^(\w+)/(\w+)(?: GOARM=(\d))?(?: (gnu|musl))?(?: \((.+)\))?$`).FindStringSubmatch(s)
	require.NotNil(t, m, "key %q", s)
	return Platform{OS: m[1], Arch: m[2], ARM: m[3], Libc: m[4]}, m[5]
}

func TestMatchAssetReleases(t *testing.T) {
	data, err := os.ReadFile("testdata/releases.json")
	require.NoError(t, err)
	var releases []struct {
		Project string
		Assets  []string
		Expect  map[string]*string
	}
	require.NoError(t, json.Unmarshal(data, &releases))
	require.NotEmpty(t, releases)
	for _, rel := range releases {
		for key, want := range rel.Expect {
			t.Run(rel.Project+" "+key, func(t *testing.T) {
				p, name := parsePlatform(t, key)
				expect := none
				switch {
				case rel.Project == "metal-stack/firewall-controller":
					name, expect = path.Base(rel.Project), *want // it "needs an explicit asset name"
				case rel.Project == "stefanprodan/timoni" && key == "windows/amd64":
					// The list expects none although it has timoni_0.3.0_windows_amd64.zip, the same
					// shape as rclone's and copilot's, which it expects to match. No rule can tell them apart.
					require.Nil(t, want)
					expect = "timoni_0.3.0_windows_amd64.zip"
				case want == nil:
				case strings.HasPrefix(*want, "AMBIGUOUS"):
					expect = ambiguous
				default:
					expect = *want
				}
				checkMatch(t, rel.Assets, name, p, expect)
			})
		}
	}
}

func TestMatchAssetKinds(t *testing.T) {
	for _, tt := range []struct {
		kind   string
		assets string // %[1]s-like lists are written out: the shapes of real releases
		want   map[string]string
	}{
		{"rust triples, only musl for one, only gnu for another (ripgrep)",
			`ripgrep-14.1.0-aarch64-apple-darwin.tar.gz ripgrep-14.1.0-aarch64-unknown-linux-gnu.tar.gz ripgrep-14.1.0-aarch64-unknown-linux-gnu.tar.gz.sha256
			ripgrep-14.1.0-armv7-unknown-linux-gnueabihf.tar.gz ripgrep-14.1.0-armv7-unknown-linux-musleabi.tar.gz ripgrep-14.1.0-armv7-unknown-linux-musleabihf.tar.gz
			ripgrep-14.1.0-i686-pc-windows-msvc.zip ripgrep-14.1.0-i686-unknown-linux-gnu.tar.gz ripgrep-14.1.0-powerpc64-unknown-linux-gnu.tar.gz
			ripgrep-14.1.0-s390x-unknown-linux-gnu.tar.gz ripgrep-14.1.0-x86_64-apple-darwin.tar.gz ripgrep-14.1.0-x86_64-pc-windows-gnu.zip
			ripgrep-14.1.0-x86_64-pc-windows-msvc.zip ripgrep-14.1.0-x86_64-pc-windows-msvc.zip.sha256 ripgrep-14.1.0-x86_64-unknown-linux-musl.tar.gz ripgrep_14.1.0-1_amd64.deb`,
			map[string]string{
				"linux/amd64": "ripgrep-14.1.0-x86_64-unknown-linux-musl.tar.gz", "linux/amd64 (ripgrep)": "ripgrep-14.1.0-x86_64-unknown-linux-musl.tar.gz",
				"linux/amd64 gnu": none, "linux/arm64": "ripgrep-14.1.0-aarch64-unknown-linux-gnu.tar.gz", "linux/arm64 musl": none,
				"linux/arm GOARM=7 gnu": "ripgrep-14.1.0-armv7-unknown-linux-gnueabihf.tar.gz", "linux/arm GOARM=6": none, "linux/arm": ambiguous,
				"linux/ppc64": "ripgrep-14.1.0-powerpc64-unknown-linux-gnu.tar.gz", "linux/ppc64le": none, "linux/ppc": none,
				"windows/amd64": ambiguous, "windows/386": "ripgrep-14.1.0-i686-pc-windows-msvc.zip", "darwin/arm64": "ripgrep-14.1.0-aarch64-apple-darwin.tar.gz",
			}},
		{"gnu and musl (bat)",
			`bat-v0.24.0-x86_64-unknown-linux-gnu.tar.gz bat-v0.24.0-x86_64-unknown-linux-musl.tar.gz bat-v0.24.0-arm-unknown-linux-gnueabihf.tar.gz
			bat-v0.24.0-arm-unknown-linux-musleabihf.tar.gz bat-musl_0.24.0_amd64.deb bat_0.24.0_amd64.deb`,
			map[string]string{
				"linux/amd64": ambiguous, "linux/amd64 gnu": "bat-v0.24.0-x86_64-unknown-linux-gnu.tar.gz",
				"linux/amd64 musl (bat)": "bat-v0.24.0-x86_64-unknown-linux-musl.tar.gz", "linux/arm GOARM=6 gnu": "bat-v0.24.0-arm-unknown-linux-gnueabihf.tar.gz",
			}},
		{"macOS in the name, packages beside (gh)",
			`gh_2.40.0_checksums.txt gh_2.40.0_linux_386.deb gh_2.40.0_linux_386.rpm gh_2.40.0_linux_386.tar.gz gh_2.40.0_linux_amd64.deb gh_2.40.0_linux_amd64.rpm
			gh_2.40.0_linux_amd64.tar.gz gh_2.40.0_linux_arm64.tar.gz gh_2.40.0_linux_armv6.deb gh_2.40.0_linux_armv6.tar.gz gh_2.40.0_macOS_amd64.zip gh_2.40.0_macOS_arm64.zip
			gh_2.40.0_macOS_universal.pkg gh_2.40.0_windows_386.msi gh_2.40.0_windows_386.zip gh_2.40.0_windows_amd64.msi gh_2.40.0_windows_amd64.zip gh_2.40.0_windows_arm64.zip`,
			map[string]string{
				"linux/amd64": "gh_2.40.0_linux_amd64.tar.gz", "darwin/arm64": "gh_2.40.0_macOS_arm64.zip", "windows/amd64": "gh_2.40.0_windows_amd64.zip",
				"linux/arm": "gh_2.40.0_linux_armv6.tar.gz", "linux/arm GOARM=6": "gh_2.40.0_linux_armv6.tar.gz", "linux/arm GOARM=7": none, "linux/arm GOARM=5": none,
			}},
		{"a second flavour of the program (hugo)",
			`hugo_0.123.0_checksums.txt hugo_0.123.0_darwin-universal.tar.gz hugo_0.123.0_linux-amd64.deb hugo_0.123.0_linux-amd64.tar.gz hugo_0.123.0_linux-arm64.tar.gz
			hugo_0.123.0_Linux-64bit.tar.gz.asc hugo_extended_0.123.0_darwin-universal.tar.gz hugo_extended_0.123.0_linux-amd64.tar.gz hugo_extended_0.123.0_windows-amd64.zip
			hugo_extended_withdeploy_0.123.0_linux-amd64.tar.gz hugo_0.123.0_windows-amd64.zip`,
			map[string]string{
				"linux/amd64": ambiguous, "linux/amd64 (hugo)": "hugo_0.123.0_linux-amd64.tar.gz", "linux/amd64 (hugo_extended)": "hugo_extended_0.123.0_linux-amd64.tar.gz",
				"darwin/arm64 (hugo)": "hugo_0.123.0_darwin-universal.tar.gz", "darwin/amd64 (hugo_extended)": "hugo_extended_0.123.0_darwin-universal.tar.gz",
				"linux/arm64": "hugo_0.123.0_linux-arm64.tar.gz", "linux/arm64 (hugo_extended)": none,
			}},
		{"64bit (hugo of old)", `hugo_0.90.0_Linux-32bit.tar.gz hugo_0.90.0_Linux-64bit.tar.gz hugo_0.90.0_Linux-ARM.tar.gz hugo_0.90.0_Linux-ARM64.tar.gz hugo_0.90.0_macOS-64bit.tar.gz hugo_0.90.0_macOS-ARM64.tar.gz`,
			map[string]string{"linux/amd64": "hugo_0.90.0_Linux-64bit.tar.gz", "linux/386": "hugo_0.90.0_Linux-32bit.tar.gz", "linux/arm64": "hugo_0.90.0_Linux-ARM64.tar.gz", "linux/arm": "hugo_0.90.0_Linux-ARM.tar.gz", "darwin/amd64": "hugo_0.90.0_macOS-64bit.tar.gz"}},
		{"variants behind the platform (bun)",
			`bun-darwin-aarch64.zip bun-darwin-x64.zip bun-darwin-x64-baseline.zip bun-darwin-x64-profile.zip bun-linux-aarch64.zip bun-linux-aarch64-musl.zip bun-linux-x64.zip
			bun-linux-x64-baseline.zip bun-linux-x64-musl.zip bun-linux-x64-musl-baseline.zip bun-windows-x64.zip bun-windows-x64-baseline.zip SHASUMS256.txt SHASUMS256.txt.asc`,
			map[string]string{
				"linux/amd64 (bun)": ambiguous, "linux/amd64 gnu (bun)": "bun-linux-x64.zip", "linux/amd64 musl (bun)": "bun-linux-x64-musl.zip", "linux/amd64": ambiguous,
				"windows/amd64 (bun)": "bun-windows-x64.zip", "windows/amd64": ambiguous, "darwin/arm64": "bun-darwin-aarch64.zip",
			}},
		{"a name that begins with another's (deno)",
			`deno-aarch64-apple-darwin.zip deno-x86_64-unknown-linux-gnu.zip deno-x86_64-pc-windows-msvc.zip denort-aarch64-apple-darwin.zip denort-x86_64-unknown-linux-gnu.zip deno_src.tar.gz lib.deno.d.ts deno-x86_64-unknown-linux-gnu.zip.sha256sum`,
			map[string]string{"linux/amd64": ambiguous, "linux/amd64 (deno)": "deno-x86_64-unknown-linux-gnu.zip", "linux/amd64 (denort)": "denort-x86_64-unknown-linux-gnu.zip", "windows/amd64 (denort)": none}},
		{"cargo-dist (uv)",
			`dist-manifest.json sha256.sum source.tar.gz source.tar.gz.sha256 uv-aarch64-apple-darwin.tar.gz uv-aarch64-unknown-linux-gnu.tar.gz uv-aarch64-unknown-linux-musl.tar.gz
			uv-arm-unknown-linux-musleabihf.tar.gz uv-armv7-unknown-linux-gnueabihf.tar.gz uv-armv7-unknown-linux-musleabihf.tar.gz uv-i686-pc-windows-msvc.zip uv-installer.ps1 uv-installer.sh
			uv-powerpc64-unknown-linux-gnu.tar.gz uv-powerpc64le-unknown-linux-gnu.tar.gz uv-riscv64gc-unknown-linux-gnu.tar.gz uv-x86_64-unknown-linux-gnu.tar.gz uv-x86_64-unknown-linux-musl.tar.gz uv-x86_64-pc-windows-msvc.zip`,
			map[string]string{
				"linux/amd64": ambiguous, "linux/amd64 musl": "uv-x86_64-unknown-linux-musl.tar.gz", "linux/ppc64le": "uv-powerpc64le-unknown-linux-gnu.tar.gz",
				"linux/riscv64": "uv-riscv64gc-unknown-linux-gnu.tar.gz", "linux/arm GOARM=7 musl": "uv-armv7-unknown-linux-musleabihf.tar.gz",
				"linux/arm GOARM=6 musl": "uv-arm-unknown-linux-musleabihf.tar.gz", "windows/amd64": "uv-x86_64-pc-windows-msvc.zip", "windows/arm64": none,
			}},
		{"mac, sources and several arms (caddy)",
			`caddy_2.7.6_buildable-artifact.tar.gz caddy_2.7.6_buildable-artifact.tar.gz.sig caddy_2.7.6_checksums.txt caddy_2.7.6_checksums.txt.pem caddy_2.7.6_linux_amd64.deb caddy_2.7.6_linux_amd64.sbom
			caddy_2.7.6_linux_amd64.sbom.pem caddy_2.7.6_linux_amd64.tar.gz caddy_2.7.6_linux_amd64.tar.gz.sig caddy_2.7.6_linux_arm64.tar.gz caddy_2.7.6_linux_armv5.tar.gz caddy_2.7.6_linux_armv6.tar.gz
			caddy_2.7.6_linux_armv7.tar.gz caddy_2.7.6_mac_amd64.tar.gz caddy_2.7.6_mac_arm64.tar.gz caddy_2.7.6_src.tar.gz caddy_2.7.6_windows_amd64.zip caddy_2.7.6_windows_armv7.zip`,
			map[string]string{
				"linux/amd64": "caddy_2.7.6_linux_amd64.tar.gz", "darwin/amd64": "caddy_2.7.6_mac_amd64.tar.gz", "linux/arm": ambiguous, "linux/arm GOARM=5": "caddy_2.7.6_linux_armv5.tar.gz",
				"linux/arm GOARM=6": "caddy_2.7.6_linux_armv6.tar.gz", "windows/arm GOARM=7": "caddy_2.7.6_windows_armv7.zip", "freebsd/amd64": none,
			}},
		{"dots before the system, the whole mips family (node_exporter)",
			`node_exporter-1.7.0.darwin-amd64.tar.gz node_exporter-1.7.0.linux-386.tar.gz node_exporter-1.7.0.linux-amd64.tar.gz node_exporter-1.7.0.linux-arm64.tar.gz node_exporter-1.7.0.linux-armv7.tar.gz
			node_exporter-1.7.0.linux-mips.tar.gz node_exporter-1.7.0.linux-mips64.tar.gz node_exporter-1.7.0.linux-mips64le.tar.gz node_exporter-1.7.0.linux-mipsle.tar.gz node_exporter-1.7.0.linux-ppc64.tar.gz
			node_exporter-1.7.0.linux-ppc64le.tar.gz node_exporter-1.7.0.openbsd-amd64.tar.gz sha256sums.txt`,
			map[string]string{
				"linux/mips": "node_exporter-1.7.0.linux-mips.tar.gz", "linux/mipsle": "node_exporter-1.7.0.linux-mipsle.tar.gz", "linux/mips64": "node_exporter-1.7.0.linux-mips64.tar.gz",
				"linux/mips64le": "node_exporter-1.7.0.linux-mips64le.tar.gz", "linux/ppc64": "node_exporter-1.7.0.linux-ppc64.tar.gz", "linux/ppc": none, "openbsd/amd64": "node_exporter-1.7.0.openbsd-amd64.tar.gz",
				"linux/amd64 (node_exporter)": "node_exporter-1.7.0.linux-amd64.tar.gz", "linux/amd64 (node-exporter)": "node_exporter-1.7.0.linux-amd64.tar.gz", "linux/amd64 (exporter2)": none,
			}},
		{"32-bit with a dash (lazygit)", `lazygit_0.40.2_Darwin_arm64.tar.gz lazygit_0.40.2_Darwin_x86_64.tar.gz lazygit_0.40.2_Linux_32-bit.tar.gz lazygit_0.40.2_Linux_arm64.tar.gz lazygit_0.40.2_Linux_armv6.tar.gz lazygit_0.40.2_Linux_x86_64.tar.gz lazygit_0.40.2_Windows_32-bit.zip lazygit_0.40.2_Windows_x86_64.zip`,
			map[string]string{"linux/386": "lazygit_0.40.2_Linux_32-bit.tar.gz", "linux/amd64": "lazygit_0.40.2_Linux_x86_64.tar.gz", "windows/386": "lazygit_0.40.2_Windows_32-bit.zip"}},
		{"raw and archive (yq)", `yq_linux_amd64 yq_linux_amd64.tar.gz yq_linux_arm yq_linux_arm.tar.gz yq_linux_arm64 yq_windows_amd64.exe yq_windows_amd64.zip yq_darwin_arm64 yq_darwin_arm64.tar.gz checksums checksums-bsd checksums_hashes_order extract-checksum.sh yq_man_page_only.tar.gz`,
			map[string]string{"linux/amd64": "yq_linux_amd64", "windows/amd64": "yq_windows_amd64.exe", "linux/arm GOARM=7": "yq_linux_arm", "darwin/arm64 (yq)": "yq_darwin_arm64", "darwin/amd64": none}},
		{"numbers stuck to the system (jq 1.6)", `jq-1.6.tar.gz jq-1.6.zip jq-linux32 jq-linux64 jq-osx-amd64 jq-win32.exe jq-win64.exe`,
			map[string]string{"linux/amd64": "jq-linux64", "linux/386": "jq-linux32", "windows/amd64": "jq-win64.exe", "windows/386": "jq-win32.exe", "darwin/amd64": "jq-osx-amd64", "darwin/arm64": none, "linux/arm64": none}},
		{"the same twice (jq 1.7)", `jq-linux-amd64 jq-linux64 jq-linux-arm64 jq-linux-armel jq-linux-armhf jq-linux-i386 jq-linux-mips64r6 jq-linux-ppc64el jq-linux-powerpc jq-macos-amd64 jq-macos-arm64 jq-osx-amd64 jq-win64.exe jq-windows-amd64.exe sha256sum.txt`,
			map[string]string{"linux/amd64": ambiguous, "darwin/arm64": "jq-macos-arm64", "darwin/amd64": ambiguous, "linux/arm": ambiguous, "linux/arm GOARM=7": "jq-linux-armhf", "linux/arm GOARM=5": "jq-linux-armel", "linux/ppc64le": "jq-linux-ppc64el", "linux/ppc": "jq-linux-powerpc", "linux/mips64": none, "linux/386": "jq-linux-i386"}},
		{"drivers beside (minikube)", `docker-machine-driver-kvm2 docker-machine-driver-kvm2-amd64 docker-machine-driver-kvm2-arm64 docker-machine-driver-kvm2.sha256 minikube-darwin-amd64 minikube-darwin-amd64.tar.gz minikube-installer.exe minikube-linux-amd64 minikube-linux-amd64.sha256 minikube-linux-amd64.tar.gz minikube-windows-amd64.exe minikube_latest_amd64.deb minikube-latest.x86_64.rpm`,
			map[string]string{"linux/amd64": "minikube-linux-amd64", "windows/amd64": "minikube-windows-amd64.exe", "darwin/amd64": "minikube-darwin-amd64", "linux/arm64": none}},
		{"version last (syncthing)", `syncthing-linux-amd64-v1.27.0.tar.gz syncthing-linux-arm-v1.27.0.tar.gz syncthing-linux-arm64-v1.27.0.tar.gz syncthing-macos-amd64-v1.27.0.zip syncthing-macos-universal-v1.27.0.zip syncthing-source-v1.27.0.tar.gz syncthing-windows-amd64-v1.27.0.zip syncthing-illumos-amd64-v1.27.0.tar.gz`,
			map[string]string{"linux/amd64": "syncthing-linux-amd64-v1.27.0.tar.gz", "darwin/arm64": "syncthing-macos-universal-v1.27.0.zip", "darwin/amd64": "syncthing-macos-amd64-v1.27.0.zip", "linux/arm GOARM=6": "syncthing-linux-arm-v1.27.0.tar.gz", "illumos/amd64": "syncthing-illumos-amd64-v1.27.0.tar.gz"}},
		{"bz2 (restic)", `restic-0.16.0.tar.gz restic-0.16.0.tar.gz.asc restic_0.16.0_linux_amd64.bz2 restic_0.16.0_linux_arm.bz2 restic_0.16.0_windows_amd64.zip SHA256SUMS SHA256SUMS.asc`,
			map[string]string{"linux/amd64": "restic_0.16.0_linux_amd64.bz2", "linux/arm GOARM=7": "restic_0.16.0_linux_arm.bz2", "windows/amd64": "restic_0.16.0_windows_amd64.zip"}},
		{"signatures and a build for other hardware (cosign)", `cosign-2.2.0-1.x86_64.rpm cosign-linux-amd64 cosign-linux-amd64-keyless.pem cosign-linux-amd64-keyless.sig cosign-linux-amd64.sig cosign-linux-amd64_2.2.0_linux_amd64.sbom cosign-linux-pivkey-pkcs11key-amd64 cosign-linux-pivkey-pkcs11key-amd64.sig cosign-windows-amd64.exe cosign_2.2.0_amd64.deb cosign_checksums.txt release-cosign.pub`,
			map[string]string{"linux/amd64": ambiguous, "linux/amd64 (cosign)": "cosign-linux-amd64", "windows/amd64": "cosign-windows-amd64.exe"}},
		{"microarchitecture (goreleaser)", `t_linux_amd64v1.tar.gz t_linux_amd64v3.tar.gz t_darwin_all.tar.gz t_windows_amd64_v3.zip t_freebsd_amd64.tar.gz t_freebsd_amd64-v2.tar.gz t_linux_x86_64_v4.tar.gz`,
			map[string]string{"linux/amd64": "t_linux_amd64v1.tar.gz", "darwin/arm64": "t_darwin_all.tar.gz", "darwin/amd64": "t_darwin_all.tar.gz", "windows/amd64": none, "freebsd/amd64": "t_freebsd_amd64.tar.gz"}},
		{"arm6, arm7 (natscli)", `nats-0.1.1-linux-386.zip nats-0.1.1-linux-amd64.zip nats-0.1.1-linux-arm6.zip nats-0.1.1-linux-arm7.zip nats-0.1.1-linux-arm64.zip nats-0.1.1-arm64.deb`,
			map[string]string{"linux/arm": ambiguous, "linux/arm GOARM=6": "nats-0.1.1-linux-arm6.zip", "linux/arm GOARM=7": "nats-0.1.1-linux-arm7.zip", "linux/arm GOARM=5": none, "linux/arm64": "nats-0.1.1-linux-arm64.zip"}},
		{"plain arm beside arm-v6 and arm-v7 (rclone)", `rclone-v1.68.1-linux-arm.zip rclone-v1.68.1-linux-arm-v6.zip rclone-v1.68.1-linux-arm-v7.zip rclone-v1.68.1-linux-arm64.zip`,
			map[string]string{"linux/arm": "rclone-v1.68.1-linux-arm.zip", "linux/arm GOARM=5": "rclone-v1.68.1-linux-arm.zip", "linux/arm GOARM=6": "rclone-v1.68.1-linux-arm-v6.zip", "linux/amd64": none}},
		{"no architecture (ninja)", `ninja-linux.zip ninja-linux-aarch64.zip ninja-mac.zip ninja-win.zip ninja-winarm64.zip`,
			map[string]string{"linux/amd64": "ninja-linux.zip", "linux/arm64": "ninja-linux-aarch64.zip", "linux/386": none, "darwin/arm64": "ninja-mac.zip", "darwin/amd64": "ninja-mac.zip", "windows/amd64": "ninja-win.zip", "windows/arm64": "ninja-winarm64.zip"}},
		{"raw without the version, archive with it (chezmoi)", `chezmoi-linux-amd64 chezmoi-linux-amd64-musl chezmoi-windows-amd64.exe chezmoi_2.46.1_linux-glibc_amd64.tar.gz chezmoi_2.46.1_linux-musl_amd64.tar.gz chezmoi_2.46.1_windows_amd64.zip chezmoi_2.46.1_linux_i386.tar.gz chezmoi-2.46.1-x86_64.rpm`,
			map[string]string{"linux/amd64": ambiguous, "windows/amd64": "chezmoi-windows-amd64.exe", "linux/386": "chezmoi_2.46.1_linux_i386.tar.gz", "linux/amd64 gnu": "chezmoi_2.46.1_linux-glibc_amd64.tar.gz"}},
		{"two versions in one release", `t-1.0-linux-amd64.tar.gz t-1.1-linux-amd64.zip t-linux-amd64.tgz`, map[string]string{"linux/amd64": ambiguous}},
		{"hard and soft float (frp, cloudflared)", `frp_0.53.2_linux_arm.tar.gz frp_0.53.2_linux_arm_hf.tar.gz frp_0.53.2_linux_arm64.tar.gz frp_sha256_checksums.txt`,
			map[string]string{"linux/arm": "frp_0.53.2_linux_arm.tar.gz", "linux/arm GOARM=7": "frp_0.53.2_linux_arm_hf.tar.gz", "linux/arm GOARM=5": "frp_0.53.2_linux_arm.tar.gz"}},
		{"dashes and numbers (gitea)", `gitea-1.21.3-linux-amd64 gitea-1.21.3-linux-amd64.asc gitea-1.21.3-linux-amd64.xz gitea-1.21.3-linux-amd64.xz.sha256 gitea-1.21.3-linux-arm-5 gitea-1.21.3-linux-arm-6 gitea-1.21.3-darwin-10.12-amd64 gitea-1.21.3-windows-4.0-amd64.exe gitea-1.21.3-gogit-windows-4.0-amd64.exe gitea-src-1.21.3.tar.gz gitea-docs-1.21.3.tar.gz`,
			map[string]string{"linux/amd64": "gitea-1.21.3-linux-amd64", "linux/arm GOARM=5": "gitea-1.21.3-linux-arm-5", "linux/arm GOARM=7": none, "darwin/amd64": "gitea-1.21.3-darwin-10.12-amd64", "windows/amd64": ambiguous, "windows/amd64 (gitea)": "gitea-1.21.3-windows-4.0-amd64.exe"}},
		{"everything with a dash (xray)", `Xray-linux-32.zip Xray-linux-64.zip Xray-linux-64.zip.dgst Xray-linux-arm32-v5.zip Xray-linux-arm32-v7a.zip Xray-linux-arm64-v8a.zip Xray-linux-mips32le.zip Xray-macos-64.zip Xray-win7-64.zip Xray-windows-64.zip Xray-android-arm64-v8a.zip`,
			map[string]string{"linux/amd64": "Xray-linux-64.zip", "linux/386": "Xray-linux-32.zip", "linux/arm GOARM=7": "Xray-linux-arm32-v7a.zip", "linux/arm GOARM=6": none, "linux/arm64": "Xray-linux-arm64-v8a.zip", "linux/mipsle": "Xray-linux-mips32le.zip", "windows/amd64": "Xray-windows-64.zip", "android/arm64 (xray)": "Xray-android-arm64-v8a.zip"}},
		{"bits with a dash (trivy)", `trivy_0.48.0_Linux-32bit.tar.gz trivy_0.48.0_Linux-64bit.deb trivy_0.48.0_Linux-64bit.tar.gz trivy_0.48.0_Linux-64bit.tar.gz.sig trivy_0.48.0_Linux-ARM.tar.gz trivy_0.48.0_Linux-ARM64.tar.gz trivy_0.48.0_Linux-PPC64LE.tar.gz trivy_0.48.0_windows-64bit.zip bom.json`,
			map[string]string{"linux/amd64": "trivy_0.48.0_Linux-64bit.tar.gz", "linux/386": "trivy_0.48.0_Linux-32bit.tar.gz", "linux/ppc64le": "trivy_0.48.0_Linux-PPC64LE.tar.gz", "windows/amd64": "trivy_0.48.0_windows-64bit.zip", "linux/ppc64": none}},
		{"a version stuck to the name (tinygo, go)", `tinygo0.31.0.darwin-amd64.tar.gz tinygo0.31.0.linux-amd64.tar.gz tinygo0.31.0.linux-arm.tar.gz tinygo0.31.0.windows-amd64.zip tinygo_0.31.0_amd64.deb`,
			map[string]string{"linux/amd64": "tinygo0.31.0.linux-amd64.tar.gz", "linux/amd64 (tinygo)": "tinygo0.31.0.linux-amd64.tar.gz", "linux/amd64 (tiny)": none}},
		{"architecture before or behind the system (zig)", `zig-0.14.0.tar.xz zig-bootstrap-0.14.0.tar.xz zig-linux-x86_64-0.14.0.tar.xz zig-linux-x86_64-0.14.0.tar.xz.minisig zig-aarch64-macos-0.14.0.tar.xz zig-x86-windows-0.14.0.zip`,
			map[string]string{"linux/amd64": "zig-linux-x86_64-0.14.0.tar.xz", "darwin/arm64": "zig-aarch64-macos-0.14.0.tar.xz", "windows/386": "zig-x86-windows-0.14.0.zip"}},
		{"no system (tailscale, runc)", `tailscale_1.60.0_386.tgz tailscale_1.60.0_amd64.tgz tailscale_1.60.0_arm.tgz tailscale_1.60.0_arm64.tgz tailscale-setup-1.60.0-amd64.msi tailscale-setup-1.60.0.exe Tailscale-1.60.0-macos.zip Tailscale-1.60.0-macos.pkg`,
			map[string]string{"linux/amd64": "tailscale_1.60.0_amd64.tgz", "linux/arm64": "tailscale_1.60.0_arm64.tgz", "windows/amd64": none, "freebsd/amd64": none}},
		{"no system, dots", `libseccomp-2.5.4.tar.gz runc.amd64 runc.amd64.asc runc.arm64 runc.armel runc.armhf runc.ppc64le runc.tar.xz runc.sha256sum`,
			map[string]string{"linux/amd64": "runc.amd64", "linux/arm GOARM=7": "runc.armhf", "linux/ppc64le (runc)": "runc.ppc64le", "linux/riscv64": none}},
		{"two formats of one archive (node)", `node-v20.11.0-darwin-arm64.tar.gz node-v20.11.0-darwin-arm64.tar.xz node-v20.11.0-headers.tar.gz node-v20.11.0-linux-armv7l.tar.gz node-v20.11.0-linux-x64.tar.gz node-v20.11.0-linux-x64.tar.xz node-v20.11.0-win-x64.7z node-v20.11.0-win-x64.zip node-v20.11.0-x64.msi node-v20.11.0.pkg node-v20.11.0.tar.gz`,
			map[string]string{"linux/amd64": "node-v20.11.0-linux-x64.tar.gz", "windows/amd64": "node-v20.11.0-win-x64.zip", "darwin/arm64": "node-v20.11.0-darwin-arm64.tar.gz"}},
		{"conda's words (micromamba)", `micromamba-linux-64 micromamba-linux-64.sha256 micromamba-linux-64.tar.bz2 micromamba-linux-aarch64 micromamba-osx-64 micromamba-osx-arm64 micromamba-win-64 micromamba-win-64.exe`,
			map[string]string{"linux/amd64": "micromamba-linux-64", "darwin/amd64": "micromamba-osx-64", "windows/amd64": "micromamba-win-64.exe", "linux/386": none}},
		{"a static build beside (micro)", `micro-2.0.13-linux64.tar.gz micro-2.0.13-linux64-static.tar.gz micro-2.0.13-linux-arm64.tar.gz micro-2.0.13-macos-arm64.tar.gz micro-2.0.13-osx.tar.gz micro-2.0.13-win64.zip micro-2.0.13.tar.gz`,
			map[string]string{"linux/amd64": ambiguous, "linux/amd64 (micro)": "micro-2.0.13-linux64.tar.gz", "darwin/amd64": "micro-2.0.13-osx.tar.gz", "darwin/arm64": "micro-2.0.13-macos-arm64.tar.gz"}},
		{"a build for an older system (cmake)", `cmake-3.29.0-linux-x86_64.sh cmake-3.29.0-linux-x86_64.tar.gz cmake-3.29.0-macos-universal.dmg cmake-3.29.0-macos-universal.tar.gz cmake-3.29.0-macos10.10-universal.tar.gz cmake-3.29.0-windows-i386.zip cmake-3.29.0-windows-x86_64.msi cmake-3.29.0-windows-x86_64.zip cmake-3.29.0.tar.gz cmake-3.29.0-files-v1.json`,
			map[string]string{"linux/amd64": "cmake-3.29.0-linux-x86_64.tar.gz", "darwin/arm64": "cmake-3.29.0-macos-universal.tar.gz", "windows/amd64": "cmake-3.29.0-windows-x86_64.zip"}},
		{"distributions", `t-1.0-ubuntu-20.04-x86_64.tar.gz t-1.0-ubuntu-22.04-x86_64.tar.gz t-1.0-alpine-arm64.tar.gz t-1.0-macos-14-arm64.tar.gz`,
			map[string]string{"linux/amd64": ambiguous, "linux/arm64": "t-1.0-alpine-arm64.tar.gz", "linux/arm64 gnu": none, "darwin/arm64 (t)": "t-1.0-macos-14-arm64.tar.gz"}},
		{"system words in the program's name", `kube-linux-tool-darwin-arm64 kube-linux-tool-linux-amd64 kube-linux-tool-windows-amd64.exe`,
			map[string]string{"linux/amd64": "kube-linux-tool-linux-amd64", "darwin/arm64": "kube-linux-tool-darwin-arm64", "windows/amd64 (kube-linux-tool)": "kube-linux-tool-windows-amd64.exe", "linux/arm64": none}},
		{"architecture words in the program's name, files without one", `go-arm-tool-linux.tar.gz go-arm-tool-darwin.tar.gz`,
			map[string]string{"linux/amd64": "go-arm-tool-linux.tar.gz", "linux/amd64 (go-arm-tool)": "go-arm-tool-linux.tar.gz", "linux/arm": none}},
		{"a toolchain for another machine", `arm-none-eabi-gdb-13.2-linux-x64.tar.gz arm-none-eabi-gdb-13.2-linux-arm64.tar.gz arm-none-eabi-gdb-13.2-win32-x64.zip`,
			map[string]string{"linux/amd64": "arm-none-eabi-gdb-13.2-linux-x64.tar.gz", "linux/arm": none, "windows/amd64 (arm-none-eabi-gdb)": "arm-none-eabi-gdb-13.2-win32-x64.zip"}},
		{"auxiliary words in the program's name (sbom-tool)", `sbom-tool-linux-x64 sbom-tool-osx-x64 sbom-tool-win-x64.exe`,
			map[string]string{"linux/amd64": "sbom-tool-linux-x64", "windows/amd64": "sbom-tool-win-x64.exe", "linux/amd64 (sbom-tool)": "sbom-tool-linux-x64", "linux/amd64 (sbom)": none}},
		{"one word for all of it (B46)", `afx_linux_arm64.tar.gz afx_linux_x86_64.tar.gz`,
			map[string]string{"linux/amd64": "afx_linux_x86_64.tar.gz", "linux/arm64": "afx_linux_arm64.tar.gz", "linux/arm": none, "linux/386": none}},
		{"another system's file that would run nearly", `t-linux-android-arm64 t-x86_64-linux-android t-ios-arm64 t-js-wasm32`,
			map[string]string{"linux/arm64": none, "linux/amd64": none, "android/arm64": "t-linux-android-arm64", "darwin/arm64": none}},
		{"words of macOS", `t-mac-os-x86 t-macos-apple-silicon t-linux-intel`,
			map[string]string{"darwin/amd64": "t-mac-os-x86", "darwin/arm64": "t-macos-apple-silicon", "linux/386": none}},
		{"two architectures in one file", `t-macos-x86_64-arm64.zip t-linux-x86_64.zip`,
			map[string]string{"darwin/amd64": "t-macos-x86_64-arm64.zip", "darwin/arm64 (t)": "t-macos-x86_64-arm64.zip"}},
		{"only a setup program for Windows", `t-setup-1.0-x64.exe t-1.0-x64-setup.exe t_windows_amd64_installer.zip t-linux-amd64`,
			map[string]string{"windows/amd64": none, "linux/amd64": "t-linux-amd64"}},
		{"unsafe names", "../t-linux-amd64 t/linux-amd64 t\\linux-amd64 t\x07-linux-amd64 t-linux-amd64",
			map[string]string{"linux/amd64": "t-linux-amd64"}},
		{"no platform, not asked for by name", `tool tool.sha256`, map[string]string{"linux/amd64": none, "linux/amd64 (tool)": "tool", "linux/amd64 (tool.sha256)": none, "linux/amd64 (too)": none}},
		{"no platform, but others have one (k3s)", `k3s k3s-arm64 k3s-armhf k3s-airgap-images-amd64.tar.gz`,
			map[string]string{"linux/amd64 (k3s)": none, "linux/arm64 (k3s)": "k3s-arm64", "linux/arm GOARM=7 (k3s)": "k3s-armhf"}},
		{"another program with a channel's word (loki)", `loki-linux-arm64.zip loki-canary-linux-amd64.zip loki-canary-linux-arm64.zip`,
			map[string]string{"linux/amd64 (loki)": none, "linux/arm64 (loki)": "loki-linux-arm64.zip", "linux/amd64 (loki-canary)": "loki-canary-linux-amd64.zip"}},
		{"another program with a word before the name", `agent-linux-arm64 edge-agent-linux-amd64 linux-agent-linux-amd64 musl-agent-linux-amd64 pc-agent-linux-amd64`,
			map[string]string{"linux/amd64 (agent)": none, "linux/arm64 (agent)": "agent-linux-arm64", "linux/amd64 (edge-agent)": "edge-agent-linux-amd64"}},
		{"all begin with another name", `git-sync-linux-amd64 git-sync-darwin-arm64`,
			map[string]string{"linux/amd64 (sync)": none, "linux/amd64 (git-sync)": "git-sync-linux-amd64"}},
		{"platform before the name", `linux-amd64-tool linux-arm64-tool x86_64-pc-windows-msvc-tool.exe`,
			map[string]string{"linux/amd64 (tool)": "linux-amd64-tool", "windows/amd64 (tool)": "x86_64-pc-windows-msvc-tool.exe"}},
		{"other programs with words of a version, of a build, of a channel", `t-linux-arm64 t-dev-linux-amd64 t-2fa-linux-amd64 t-2-linux-amd64 t-master-linux-amd64 t-dist-linux-amd64 t-rc1-linux-amd64 t-pc-linux-amd64 tv3-linux-amd64`,
			map[string]string{"linux/amd64 (t)": none, "linux/arm64 (t)": "t-linux-arm64", "linux/amd64 (t-dev)": "t-dev-linux-amd64", "linux/amd64 (t-2fa)": "t-2fa-linux-amd64", "linux/amd64 (tv3)": "tv3-linux-amd64"}},
		{"a channel's word on all", `tool-nightly-linux-amd64 tool-nightly-darwin-arm64 tool-nightly-linux-amd64.sha256`,
			map[string]string{"linux/amd64 (tool)": "tool-nightly-linux-amd64", "darwin/arm64 (tool)": "tool-nightly-darwin-arm64", "linux/arm64 (tool)": none}},
		{"a channel's word on all of this program, not on others", `tool-nightly-linux-amd64 tool-nightly-darwin-arm64 helper-linux-amd64`,
			map[string]string{"linux/amd64 (tool)": none, "linux/amd64 (tool-nightly)": "tool-nightly-linux-amd64"}},
		{"a channel's word on the only one", `tool-nightly-linux-amd64`,
			map[string]string{"linux/amd64 (tool)": none, "linux/amd64 (tool-nightly)": "tool-nightly-linux-amd64", "linux/amd64": "tool-nightly-linux-amd64"}},
		{"a build's word on all, before and behind the platform", `tool-static-linux-amd64 tool-static-linux-arm64 opa_linux_amd64 opa_linux_arm64_static`,
			map[string]string{"linux/amd64 (tool)": "tool-static-linux-amd64", "linux/arm64 (opa)": "opa_linux_arm64_static", "linux/amd64 (opa)": "opa_linux_amd64"}},
		{"a number stuck to the name", `iperf3-linux-amd64 rke2.linux-amd64`,
			map[string]string{"linux/amd64 (iperf)": none, "linux/amd64 (rke)": none, "linux/amd64 (iperf3)": "iperf3-linux-amd64", "linux/amd64 (rke2)": "rke2.linux-amd64"}},
		{"a version stuck to the name, with a v or a dot", `av2-linux-amd64 av2-linux-arm64 b2.1.linux-amd64 cv2.1-linux-amd64 c-darwin-arm64 go1.22rc1.linux-amd64.tar.gz`,
			map[string]string{"linux/amd64 (a)": "av2-linux-amd64", "linux/amd64 (b)": "b2.1.linux-amd64", "linux/amd64 (c)": "cv2.1-linux-amd64", "linux/amd64 (go)": "go1.22rc1.linux-amd64.tar.gz"}},
		{"versions before a release", `a-1.2.0-rc1-linux-amd64 b-1.2.0-beta.2-linux-amd64 c-v2-linux-amd64 d_20240301_linux_amd64 e-1.2.0a1-linux-amd64`,
			map[string]string{"linux/amd64 (a)": "a-1.2.0-rc1-linux-amd64", "linux/amd64 (b)": "b-1.2.0-beta.2-linux-amd64", "linux/amd64 (c)": "c-v2-linux-amd64", "linux/amd64 (d)": "d_20240301_linux_amd64", "linux/amd64 (e)": "e-1.2.0a1-linux-amd64"}},
		{"a version behind different architectures", `tool-linux-amd64-v2.tar.gz tool-linux-arm64-v2.tar.gz tool-linux-arm-v2.tar.gz`,
			map[string]string{"linux/amd64 (tool)": "tool-linux-amd64-v2.tar.gz", "linux/arm64": "tool-linux-arm64-v2.tar.gz", "linux/arm GOARM=7 (tool)": "tool-linux-arm-v2.tar.gz"}},
		{"a version that looks like a GOARM", `tool-linux-amd64-v5 tool-linux-arm-v5`,
			map[string]string{"linux/amd64 (tool)": "tool-linux-amd64-v5", "linux/arm GOARM=7 (tool)": "tool-linux-arm-v5"}},
		{"flavours of one architecture", `tool_linux_amd64_v3 tool_darwin_amd64_v3`, map[string]string{"linux/amd64 (tool)": none}},
		{"archives of data", `k3s k3s-arm64 k3s-airgap-images-amd64.tar.gz k3s-charts-linux-amd64.tar.gz k3s-crds-linux-amd64.tgz k3s-licenses-linux-amd64.zip k3s-linux-amd64-vendor.tar.gz`,
			map[string]string{"linux/amd64": none, "linux/arm64": "k3s-arm64"}},
		{"only archives of data", `t-images-linux-amd64.tar.gz t-images-linux-arm64.tar.gz`,
			map[string]string{"linux/amd64": none, "linux/amd64 (t-images)": "t-images-linux-amd64.tar.gz"}},
		{"words of data in the program's name", `image-builder-linux-amd64 image-builder-linux-arm64`, map[string]string{"linux/amd64": "image-builder-linux-amd64"}},
		{"architectures that aren't known", `t-linux-alpha.tar.gz t-linux-armeb.tar.gz t-linux-armv4.tar.gz t-linux-sparc64v.tar.gz t-linux-riscv32.tar.gz t-linux-arm64.tar.gz`,
			map[string]string{"linux/amd64": none, "linux/amd64 (t)": none, "linux/arm": none, "linux/riscv64": none, "linux/arm64": "t-linux-arm64.tar.gz"}},
		{"no architecture beside one (the control)", `t-linux.tar.gz t-linux-arm64.tar.gz`, map[string]string{"linux/amd64": "t-linux.tar.gz"}},
		{"another ABI", `t-x86_64-unknown-linux-gnux32.tar.gz t-linux-aarch64_ilp32.tar.gz u-x86_64-unknown-linux-gnux32 u-x86_64-unknown-linux-gnu`,
			map[string]string{"linux/amd64 (t)": none, "linux/arm64": none, "linux/amd64 (u)": "u-x86_64-unknown-linux-gnu"}},
		{"32-bit on ARMv8", `t-linux-armv8l u-linux-arm32v8 v-linux-armv8 w-linux-arm64v8`,
			map[string]string{"linux/arm64 (t)": none, "linux/arm64 (u)": none, "linux/arm64 (v)": "v-linux-armv8", "linux/arm64 (w)": "w-linux-arm64v8"}},
		{"no system in a packing that says nothing", `app-x86_64.zip app-arm64.7z tool-amd64.tar.xz raw-amd64 one-amd64.gz`,
			map[string]string{"linux/amd64 (app)": none, "linux/arm64 (app)": none, "linux/amd64 (tool)": "tool-amd64.tar.xz", "linux/amd64 (raw)": "raw-amd64", "linux/amd64 (one)": "one-amd64.gz"}},
		{"a setup program's fused name", `FooSetup.exe FooSetup-arm64.exe BarInstaller-x64.exe`,
			map[string]string{"windows/amd64": none, "windows/arm64": none, "windows/amd64 (FooSetup)": "FooSetup.exe"}},
		{"numbers at the end", `a-linux-amd64.256 b-linux-amd64.1 c-linux-amd64.1.2.3 d-x64-linux-glibc2.17`,
			map[string]string{"linux/amd64 (a)": none, "linux/amd64 (b)": none, "linux/amd64 (c)": "c-linux-amd64.1.2.3", "linux/amd64 (d)": "d-x64-linux-glibc2.17"}},
		{"static in the system's word (pnpm)", `pnpm-linux-x64 pnpm-linuxstatic-x64 pnpm-linuxstatic-arm64`,
			map[string]string{"linux/amd64 (pnpm)": "pnpm-linux-x64", "linux/arm64 (pnpm)": "pnpm-linuxstatic-arm64", "linux/amd64": ambiguous}},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			for key, want := range tt.want {
				p, name := parsePlatform(t, key)
				checkMatch(t, strings.Fields(tt.assets), name, p, want)
			}
		})
	}
}

func TestMatchAssetErrorText(t *testing.T) {
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("tool%02d-linux-amd64", i))
	}
	names = append(names, "tool-linux-arm64-é\x1b[31m"+strings.Repeat("x", 300))
	_, err := MatchAsset(names, "", Platform{OS: "linux", Arch: "amd64"})
	require.ErrorIs(t, err, ErrAsset)
	assert.Contains(t, err.Error(), `ambiguous for linux/amd64: "tool00-linux-amd64", `)
	assert.Contains(t, err.Error(), "and 10 more")
	assert.NotContains(t, err.Error(), "tool20")

	_, err = MatchAsset(names[30:], "to\x00ol", Platform{OS: "plan9", Arch: "arm", ARM: "7"})
	require.ErrorIs(t, err, ErrAsset)
	assert.Contains(t, err.Error(), `none of 1 is for plan9/arm GOARM=7 of program "to\x00ol": "tool-linux-arm64-\u00e9\x1b[31m`)
	assert.Less(t, len(err.Error()), 300)

	_, err = MatchAsset(nil, "", Platform{OS: "linux", Arch: "amd64"})
	require.ErrorIs(t, err, ErrAsset)
	assert.Contains(t, err.Error(), "no assets")

	_, err = MatchAsset([]string{"a"}, "", Platform{})
	require.Error(t, err)
	require.False(t, errors.Is(err, ErrAsset), "a wrong argument")
}

func FuzzMatchAsset(f *testing.F) {
	corpus.Add(f)
	f.Add("tool-linux-amd64\ntool-linux-arm64", "tool", "linux", "amd64")
	f.Add("protoc-22.2-osx-universal_binary.zip\nx.exe\n.tar.gz", "", "darwin", "arm64")
	f.Fuzz(func(t *testing.T, list, name, system, arch string) {
		names := strings.Split(list, "\n")
		p := Platform{OS: system, Arch: arch}
		got, err := MatchAsset(names, name, p)
		slices.Reverse(names)
		again, err2 := MatchAsset(names, name, p)
		if got != again || (err == nil) != (err2 == nil) {
			t.Fatalf("the order matters: %q %v, %q %v", got, err, again, err2)
		}
		if err == nil && (!slices.Contains(names, got) || !plainName(got)) {
			t.Fatalf("matched %q", got)
		}
	})
}

func TestMatchExpandAsset(t *testing.T) {
	linux := Platform{OS: "linux", Arch: "arm", ARM: "7"}
	windows := Platform{OS: "windows", Arch: "amd64"}
	for _, tt := range []struct {
		name, template, program, version string
		p                                Platform
		want                             string // "" is an error
	}{
		{"metalctl", "{name}-{os}-{arch}", "metalctl", "v0.18.7", windows, "metalctl-windows-amd64"},
		{"extension", "{name}-{version}-{os}-{arch}{ext}", "mkcert", "v1.4.4", windows, "mkcert-v1.4.4-windows-amd64.exe"},
		{"no extension", "{name}{ext}", "firewall-controller", "", linux, "firewall-controller"},
		{"goarm", "{name}_{semver}_{os}_armv{arm}.tar.gz", "caddy", "v2.7.6", linux, "caddy_2.7.6_linux_armv7.tar.gz"},
		{"semver without v", "{semver}", "", "1.4.2", linux, "1.4.2"},
		{"semver of a word", "{semver}", "", "vnext", linux, "vnext"},
		{"plain name", "firewall-controller", "", "", linux, "firewall-controller"},
		{"plus is kept", "{name}_{version}", "k3s", "v1.32.4+k3s1", linux, "k3s_v1.32.4+k3s1"},
		{"a value is not a template", "{name}", "{os}", "", linux, "{os}"},
		{"unknown placeholder", "{name}-{libc}", "x", "v1", linux, ""},
		{"empty placeholder", "{}", "x", "v1", linux, ""},
		{"no goarm", "{name}-{arm}", "x", "v1", windows, ""},
		{"no version", "{name}-{version}", "x", "", linux, ""},
		{"unclosed", "{name", "x", "v1", linux, ""},
		{"not opened", "x}y{name}", "x", "v1", linux, ""},
		{"slash in the version", "{name}-{version}", "x", "release/1.0", linux, ""},
		{"parent directory", "{name}", "..", "v1", linux, ""},
		{"dots inside", "{name}..{os}", "x", "v1", linux, ""},
		{"NUL", "{name}", "x\x00", "v1", linux, ""},
		{"line feed", "{version}", "x", "v1\n", linux, ""},
		{"backslash", "{name}", `a\b`, "v1", linux, ""},
		{"empty", "", "x", "v1", linux, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ExpandAsset(tt.template, tt.program, tt.version, tt.p)
			require.Equal(t, tt.want, got)
			if tt.want == "" {
				require.ErrorIs(t, err, ErrAsset)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

func TestMatchHost(t *testing.T) {
	p := Host()
	require.NotEmpty(t, p.OS)
	require.NotEmpty(t, p.Arch)
	require.Equal(t, p.Arch == "arm", p.ARM != "")
}
