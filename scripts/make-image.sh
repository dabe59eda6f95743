#!/usr/bin/env bash
# Makes an OCI image of static programs: causewayd, causeway-holder, causeway-directory and
# causeway, and no distribution. Needs umoci, and neither root nor a container engine.
#   usage: scripts/make-image.sh BUILT FOLDER
#   BUILT    folder of the static programs
#   FOLDER   folder of the archive causeway-VERSION-oci.tar, for `podman load` and `skopeo copy`
set -euo pipefail
[ $# -eq 2 ] || { echo "make-image: expected two folders" >&2 && exit 2; }
cd "$(dirname "$0")/.."
umask 022
built=$1 out=$2
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
work=$(mktemp -d "${TMPDIR:-/tmp}/causeway-image.XXXXXX")
trap 'rm -rf "$work"' EXIT

die() {
    echo "make-image: $*" >&2
    exit 1
}

command -v umoci >/dev/null || die "umoci is not installed: run scripts/setup.sh packages"
root=$work/root
mkdir -p "$root"/{usr/bin,etc/causeway,run/causeway,tmp,proc,sys,dev,usr/share/doc/causeway} "$out"
chmod 1777 "$root/tmp"
for program in causewayd causeway-holder causeway-directory causeway; do
    [ -e "$built/$program" ] || die "$built/$program is missing"
    ! readelf -l "$built/$program" | grep -q INTERP || die "$built/$program is not static"
    strip -o "$root/usr/bin/$program" "$built/$program"
done
# No user or group is known by name in the image but root and causeway.
printf 'root:x:0:0:root:/:/\ncauseway:x:997:997:causeway:/run/causeway:/\n' >"$root/etc/passwd"
printf 'root:x:0:\ncauseway:x:997:\n' >"$root/etc/group"
install -m 644 packaging/causeway.toml "$root/etc/causeway/"
install -m 644 packaging/copyright LICENSE-APACHE LICENSE-MIT "$root/usr/share/doc/causeway/"
scripts/third-party.sh | gzip -9n >"$root/usr/share/doc/causeway/THIRD-PARTY.gz"

image=$work/oci:latest
umoci init --layout "$work/oci"
umoci new --image "$image"
# umoci inserts with the owners of this machine; rootless maps them to root.
umoci insert --rootless --image "$image" "$root" / 2>"$work/log" || die "umoci insert: $(cat "$work/log")"
umoci config --image "$image" --clear=config.entrypoint --config.entrypoint /usr/bin/causewayd \
    --config.volume /run/causeway --config.volume /etc/causeway --config.workingdir / \
    --config.label "org.opencontainers.image.title=causeway" \
    --config.label "org.opencontainers.image.version=$version" \
    --config.label "org.opencontainers.image.licenses=Apache-2.0 OR MIT"
umoci gc --layout "$work/oci"
# The name that `podman load`, and containerd and Docker, give the image. A tag of umoci has no colon.
name=localhost/causeway:$version
sed -i "s|\"org.opencontainers.image.ref.name\":\"latest\"|\"io.containerd.image.name\":\"$name\",\"org.opencontainers.image.ref.name\":\"$name\"|" \
    "$work/oci/index.json"
grep -q "$name" "$work/oci/index.json" || die "the image has no name"
tar -C "$work/oci" --sort=name --owner=0 --group=0 --numeric-owner -cf "$out/causeway-$version-oci.tar" .
echo "make-image: made causeway-$version-oci.tar"
