#!/usr/bin/env bash
# Installs what the tests run beside Go, from Debian's packages, and fails when it
# can't: a fault test that is skipped because strace is missing tests nothing.
. "$(dirname "$0")/lib.sh"

[[ $(uname -s) == Linux ]] || { say "not Linux: the tests with injected faults and real file systems are left out"; exit 0; }

missing=()
need() { command -v "$1" >/dev/null || missing+=("$2"); }

need gcc       gcc          # the race detector needs cgo
need strace    strace       # injected faults, the order of system calls
need setcap    libcap2-bin  # file capabilities
need setfattr  attr         # extended attributes
need chattr    e2fsprogs    # immutable files
need mkfs.ext4 e2fsprogs    # power cuts
need mkfs.xfs  xfsprogs     # the same where a missing fsync shows
need mount     mount
need ip        iproute2     # the loopback of the tests' own network namespace
need git       git
need nsenter   util-linux   # into the systemd of a test
need systemd-analyze systemd           # the units, checked
need systemd-nspawn  systemd-container # the units, under a systemd of their own
need minisign  minisign     # what publishers sign with, to be verified
need openssl   openssl
need zip       zip          # archives as the usual tools make them
need zstd      zstd

[[ ${#missing[@]} -eq 0 ]] && exit 0
say "installing ${missing[*]}"
[[ $(id -u) -eq 0 ]] || die "missing: ${missing[*]}; install them first: sudo apt-get install ${missing[*]}"
command -v apt-get >/dev/null || die "missing: ${missing[*]} (names of Debian's packages), and there is no apt-get here"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update || die "apt-get update: see above"
apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null || die "apt-get install ${missing[*]}: see above"
