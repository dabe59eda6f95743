#!/usr/bin/env bash
# Fetches the parts of RDMA test guests from the Debian archive and unpacks them into a cache: a QEMU
# with vfio-user, and the kernel and the RDMA user space of a suite. Installs nothing.
#   usage: scripts/rdma-guest.sh [DIR] [SUITE] [mpi]
#   DIR     cache, relative to the workspace (default target/vm/rdma)
#   SUITE   trixie (default), bookworm, or backports: trixie with the kernel of trixie-backports
#   mpi     UCX, libfabric and Open MPI as well
# Results, as links to folders that are named by version:
#   DIR/qemu            QEMU; DIR/qemu/run starts it with its own libraries
#   DIR/SUITE/kernel    boot/vmlinuz-RELEASE and lib/modules/RELEASE
#   DIR/SUITE/root      programs and libraries of the guest
#   DIR/SUITE/mpi       programs and libraries of UCX, libfabric and Open MPI, beside those of root
# A complete cache is used as it is, without network. Remove DIR for newer versions.
#
# apt runs with lists, state and sources of its own in DIR/apt and checks the archive's signatures. The
# mirror is that of the machine's own Debian sources, or of CAUSEWAY_MIRROR.
set -euo pipefail
cd "$(dirname "$0")/.."
self=rdma-guest
. scripts/packages.sh

# vfio-user-pci is in QEMU since 10.1.
qemu_suite=trixie-backports
qemu_package=qemu-system-x86
kernel_package=linux-image-cloud-amd64
# User space of the guest, with the libraries it depends on. busybox comes from the host.
root_packages=(ibverbs-providers ibverbs-utils rdmacm-utils perftest iproute2 netpipe-tcp ethtool)
mpi_packages=(openmpi-bin openmpi-common ucx-utils libfabric-bin)
# Libraries of graphics processors, which UCX and hwloc load where they exist.
mpi_unused='^(libllvm|libamd|libhsa|libdrm|libz3|libx|libx11|ocl-icd|libze|libhwloc-plugins|libclang|intel-)'
# Parts of packages that no guest uses.
unused=(usr/share usr/include usr/lib/systemd usr/lib/udev usr/lib/tmpfiles.d
    usr/lib/x86_64-linux-gnu/{gconv,ossl-modules,security} lib/x86_64-linux-gnu/security var)

dir=${1:-${CARGO_TARGET_DIR:-target}/vm/rdma}
suite=${2:-trixie}
part=${3:-}

die() {
    report "$@" >&2
    exit 1
}

[ -z "$part" ] || [ "$part" = mpi ] || die "unknown part $part; expected mpi or nothing"
case $suite in
trixie | bookworm) base=$suite kernel_suite=$suite ;;
backports) base=trixie kernel_suite=trixie-backports ;;
*) die "unknown suite $suite; expected trixie, bookworm or backports" ;;
esac

# Prints the URI of the Debian mirror that this machine uses.
mirror() {
    local uri
    [ -z "${CAUSEWAY_MIRROR:-}" ] || { echo "$CAUSEWAY_MIRROR" && return; }
    # The security archive has another layout.
    uri=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
        sed -n 's|/\? main$||p' | grep -E '/debian$' | sed -n 1p || true)
    echo "${uri:-http://deb.debian.org/debian}"
}

# Runs a command of apt with the private state of suite $1.
apt_in() {
    local state=$1 command=$2
    shift 2
    "$command" -qq -c "$dir/apt/$state/apt.conf" "$@"
}

# Creates the private state of suite $1 with the sources of suites $2..., and downloads the lists.
make_state() {
    local state=$dir/apt/$1 name=$1 source keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    shift
    [ -e "$keyring" ] || die "the keys of the Debian archive are missing; install the package debian-archive-keyring"
    mkdir -p "$state"/{lists,cache,archives,empty}
    : >"$state/status"
    for source in "$@"; do
        echo "deb [arch=amd64 signed-by=$keyring] $(mirror) $source main"
    done >"$state/sources.list"
    # As another user, apt could not write here.
    cat >"$state/apt.conf" <<END
Dir::State "$state";
Dir::State::status "$state/status";
Dir::State::lists "$state/lists";
Dir::Cache "$state/cache";
Dir::Cache::archives "$state/archives";
Dir::Etc::sourcelist "$state/sources.list";
Dir::Etc::sourceparts "$state/empty";
Dir::Etc::preferences "$state/empty/none";
Dir::Etc::preferencesparts "$state/empty";
APT::Sandbox::User "root";
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Install-Recommends "false";
Acquire::Retries "2";
END
    report "downloading the package lists of $* from $(mirror)"
    apt_in "$name" apt-get update -o APT::Update::Error-Mode=any ||
        die "the lists of $* could not be downloaded; check the network and CAUSEWAY_MIRROR; for a missing key upgrade debian-archive-keyring"
}

# Prints "NAME VERSION" for packages of release $2 and their dependencies, by the lists of state $1.
plan() {
    local state=$1 release=$2
    shift 2
    apt_in "$state" apt-get install -s -y -t "$release" "$@" | sed -n 's/^Inst \([^ ]*\) .*(\([^ ]*\) .*/\1 \2/p' || true
}

# Downloads the packages of plan $2 by state $1 and unpacks them into folder $3.
unpack() {
    local state=$1 plan=$2 into=$3 archives deb
    archives=$dir/apt/$state/archives
    rm -rf "$archives" "$into"
    mkdir -p "$archives/partial" "$into"
    (cd "$archives" && xargs -r <<<"${plan// /=}" env -- "${apt_download[@]}" -c "$dir/apt/$state/apt.conf") ||
        die "packages could not be downloaded; check the network, or remove $dir and try again"
    for deb in "$archives"/*.deb; do
        dpkg-deb -x "$deb" "$into"
    done
    rm -rf "$archives"
}
apt_download=(apt-get download -qq)

# Links name $2 to folder $1 beside it, after the folder is complete.
publish() {
    mv -T "$1.new" "$1"
    ln -sfnr "$1" "$2"
}

# Writes the program that starts the QEMU in folder $1.
write_launcher() {
    cat >"$1/run" <<'END'
#!/bin/sh
# Starts this folder's QEMU with this folder's libraries, modules and firmware.
here=$(dirname "$(readlink -f "$0")")
export QEMU_MODULE_DIR="$here/usr/lib/x86_64-linux-gnu/qemu"
exec "$here/usr/lib64/ld-linux-x86-64.so.2" \
    --library-path "$here/usr/lib/x86_64-linux-gnu:$QEMU_MODULE_DIR" \
    "$here/usr/bin/qemu-system-x86_64" -L "$here/usr/share/qemu" -L "$here/usr/share/seabios" "$@"
END
    chmod +x "$1/run"
}

fetch_qemu() {
    local packages version folder
    packages=$(plan trixie "$qemu_suite" "$qemu_package")
    version=$(sed -n "s/^$qemu_package [0-9]*:\?//p" <<<"$packages")
    [ -n "$version" ] || die "$qemu_suite has no installable $qemu_package"
    folder=$dir/qemu-$version
    report "fetching QEMU $version ($(wc -l <<<"$packages") packages)"
    unpack trixie "$packages" "$folder.new"
    write_launcher "$folder.new"
    rm -rf "$folder"
    publish "$folder" "$dir/qemu"
}

fetch_kernel() {
    local packages release folder
    # The other dependencies serve an installed kernel.
    packages=$(plan "$base" "$kernel_suite" "$kernel_package" |
        grep -E '^linux-(image|modules|binary)-[0-9]')
    release=$(sed -n 's/^linux-image-\([^ ]*\) .*/\1/p' <<<"$packages")
    [ -n "$release" ] || die "$kernel_suite has no installable $kernel_package"
    folder=$dir/$suite/kernel-$release
    report "fetching the kernel $release"
    unpack "$base" "$packages" "$folder.new"
    rm -rf "$folder"
    publish "$folder" "$dir/$suite/kernel"
}

# Prints the plan of packages $@, without programs that packages depend on.
plan_programs() {
    plan "$base" "$base" "$@" | grep -E "^(z?lib|$(IFS='|'; echo "$*") )"
}

fetch_root() {
    local packages version folder part
    packages=$(plan_programs "${root_packages[@]}")
    version=$(sed -n 's/^libibverbs1 //p' <<<"$packages")
    folder=$dir/$suite/root-$version
    report "fetching the RDMA user space $version ($(wc -l <<<"$packages") packages)"
    unpack "$base" "$packages" "$folder.new"
    for part in "${unused[@]}"; do
        rm -rf "${folder:?}.new/$part"
    done
    rm -rf "$folder"
    publish "$folder" "$dir/$suite/root"
}

fetch_mpi() {
    local packages version folder part
    packages=$(comm -13 <(plan_programs "${root_packages[@]}" | sort) \
        <(plan_programs "${root_packages[@]}" "${mpi_packages[@]}" | sort) |
        grep -Ev "$mpi_unused")
    version=$(sed -n 's/^openmpi-bin //p' <<<"$packages")
    folder=$dir/$suite/mpi-$version
    report "fetching Open MPI $version, UCX and libfabric ($(wc -l <<<"$packages") packages)"
    unpack "$base" "$packages" "$folder.new"
    # Texts of messages, without which mpirun does not start.
    for part in openmpi pmix prte; do
        [ ! -d "$folder.new/usr/share/$part" ] || cp -a "$folder.new/usr/share/$part" "$folder.new/$part"
    done
    for part in "${unused[@]}"; do
        rm -rf "${folder:?}.new/$part"
    done
    mkdir -p "$folder.new/usr/share"
    for part in openmpi pmix prte; do
        [ ! -d "$folder.new/$part" ] || mv "$folder.new/$part" "$folder.new/usr/share/"
    done
    rm -rf "$folder"
    publish "$folder" "$dir/$suite/mpi"
}

mkdir -p "$dir/$suite"
dir=$(realpath "$dir")
# Two callers share the cache.
exec 9>"$dir/lock"
flock 9
# A changed list of packages makes a complete cache stale; the kernel stays if its own part is the same.
kernel_recipe="$suite: $qemu_suite $qemu_package $kernel_suite $kernel_package"
recipe="$kernel_recipe ${root_packages[*]} ${unused[*]}"
mpi_recipe="${mpi_packages[*]} $mpi_unused"
complete=$dir/$suite/complete
mpi_complete=$dir/$suite/mpi-complete
has_guest='' lacks_mpi=''
[ "$(cat "$complete" 2>/dev/null)" != "$recipe" ] || [ ! -x "$dir/qemu/run" ] || has_guest=yes
[ -z "$part" ] || [ "$(cat "$mpi_complete" 2>/dev/null)" = "$recipe $mpi_recipe" ] || lacks_mpi=yes
[ -z "$has_guest" ] || [ -n "$lacks_mpi" ] || exit 0
for tool in apt-get dpkg-deb xz; do
    command -v "$tool" >/dev/null || die "$tool is missing: this needs Debian 12 or later"
done
if [ "$base" = trixie ] || [ ! -x "$dir/qemu/run" ]; then
    make_state trixie trixie trixie-backports
fi
[ -x "$dir/qemu/run" ] || fetch_qemu
[ "$base" = trixie ] || make_state "$base" "$base"
if [ -z "$has_guest" ]; then
    [[ -d $dir/$suite/kernel && $(cat "$complete" 2>/dev/null) == "$kernel_recipe "* ]] || fetch_kernel
    fetch_root
    echo "$recipe" >"$complete"
fi
if [ -n "$lacks_mpi" ]; then
    fetch_mpi
    echo "$recipe $mpi_recipe" >"$mpi_complete"
fi
report "$suite is complete in $dir: $("$dir/qemu/run" --version | sed -n 1p)"
