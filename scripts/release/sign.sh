#!/bin/sh
# Signs the hashes of a release, or checks the signature and the archives, with the keys of ssh:
#
#   sign.sh sign KEY [FOLDER]                  KEY is a private key of ssh-keygen; writes SHA256SUMS.sig
#   sign.sh verify ALLOWED_SIGNERS [FOLDER]    a file with lines "release@tritonstateful ssh-ed25519 AAAA..."
#
# FOLDER has the archives and SHA256SUMS (default: build/dist).
set -eu
usage() {
	sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
	exit 64
}
[ $# -ge 2 ] || usage
what=$1 keys=$2 folder=${3:-build/dist}
identity=release@tritonstateful namespace=tritonstateful-release
case $what in
sign)
	ssh-keygen -Y sign -f "$keys" -n "$namespace" <"$folder/SHA256SUMS" >"$folder/SHA256SUMS.sig.new" || {
		rm -f "$folder/SHA256SUMS.sig.new" # what was signed before stays
		exit 1
	}
	mv "$folder/SHA256SUMS.sig.new" "$folder/SHA256SUMS.sig"
	;;
verify)
	ssh-keygen -Y verify -f "$keys" -I "$identity" -n "$namespace" -s "$folder/SHA256SUMS.sig" <"$folder/SHA256SUMS"
	cd "$folder"
	sha256sum --check --strict --ignore-missing SHA256SUMS
	;;
*) usage ;;
esac
