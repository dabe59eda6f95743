#!/usr/bin/env bash
# Makes packages of built programs and libraries.
#   usage: scripts/make-packages.sh [OPTION...] [KIND...]
#   KIND            deb, rpm or archive; without a kind: all of them
#   --built DIR     folder of the programs and libraries (default target/release)
#   --out DIR       folder of the packages (default target/packages)
#   --version V     version of the packages (default: that of Cargo.toml)
#   --fast          compress less
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
umask 022

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
built=$target/release out=$target/packages fast='' kinds=()
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# Where cargo-deb looks for target/release/packages.
staged=$target/release/packages
pages=$target/pages
tools=$target/tools/bin
# The time of files in packages, so that the same sources make the same packages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

# Packages with their components, folders of cargo and variants.
packages=(
    "causeway daemon,mx-tool,mx-pages crates/daemon -"
    "libmyriexpress myriexpress clients/myriexpress library"
    "libmyriexpress-dev myriexpress-dev clients/myriexpress devel"
    "libfabric-causeway libfabric clients/libfabric -"
)

report() {
    echo "make-packages: $*"
}

die() {
    report "$@" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
    --built | --out | --version)
        [ $# -ge 2 ] || die "$1 needs a value"
        printf -v "${1#--}" %s "$2"
        shift
        ;;
    --fast) fast=yes ;;
    deb | rpm | archive) kinds+=("$1") ;;
    *) die "$1: expected an option, deb, rpm or archive" ;;
    esac
    shift
done
[ ${#kinds[@]} -gt 0 ] || kinds=(deb rpm archive)

# Copies the programs without symbols, as the packages have them.
strip_built() {
    local file
    rm -rf "$staged"
    mkdir -p "$staged/built" "$out"
    for file in causewayd causeway causeway-holder causeway-directory causeway-mx libmyriexpress.so libcauseway-fi.so; do
        [ -e "$built/$file" ] || die "$built/$file is missing: build it first"
        strip --strip-unneeded --remove-section=.comment -o "$staged/built/$file" "$built/$file"
    done
    scripts/make-pages.sh "$built" "$pages"
    scripts/third-party.sh | gzip -9n >"$staged/THIRD-PARTY.gz"
}

# Prints a changelog in Debian's form.
debian_changelog() {
    local date
    date=$(date -u -R -d "@$SOURCE_DATE_EPOCH")
    printf '%s (%s-1) unstable; urgency=medium\n\n' "$1" "$version"
    printf '  * Release %s. CHANGELOG.md in the sources lists the changes.\n\n' "$version"
    printf ' -- The Causeway authors <maintainers@causeway.invalid>  %s\n' "$date"
}

# Puts the files of one package in place, with its documentation.
stage() {
    local root=$1 package=$2 components=$3 lib=$4 zsh=$5 doc
    doc=$root/usr/share/doc/$package
    CAUSEWAY_VERSION=$version scripts/install-files.sh --prefix /usr --destdir "$root" --lib "$lib" \
        --zsh "$zsh" --built "$staged/built" --pages "$pages" ${components//,/ }
    mkdir -p "$doc"
    install -m 644 "$staged/THIRD-PARTY.gz" "$doc/"
    [ ! -d "$root/usr/share/man" ] || find "$root/usr/share/man" -type f -exec gzip -9n {} +
    find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

make_debs() {
    local package components folder variant root options
    [ -x "$tools/cargo-deb" ] || die "cargo-deb is missing: run scripts/package-tools.sh"
    for line in "${packages[@]}"; do
        read -r package components folder variant <<<"$line"
        root=$staged/deb/$package
        stage "$root" "$package" "$components" "lib/$(dpkg-architecture -q DEB_HOST_MULTIARCH)" \
            share/zsh/vendor-completions
        debian_changelog "$package" | gzip -9n >"$root/usr/share/doc/$package/changelog.Debian.gz"
        if [ -e "packaging/debian/$package.lintian-overrides" ]; then
            install -D -m 644 "packaging/debian/$package.lintian-overrides" \
                "$root/usr/share/lintian/overrides/$package"
        fi
        options=(--quiet --no-build --no-strip --manifest-path "$folder/Cargo.toml" --deb-version "$version-1"
            --output "$out/")
        [ "$variant" = - ] || options+=(--variant "$variant")
        [ -z "$fast" ] || options+=(--fast)
        "$tools/cargo-deb" "${options[@]}"
    done
}

# Prints the list of one package's files for rpmbuild.
rpm_list() {
    (cd "$1" && find . \( -type f -o -type l \) -printf '/%P\n') |
        sed 's|^/etc/|%config(noreplace) &|; s|^/usr/share/\(doc\|man\)/|%doc &|' | LC_ALL=C sort
}

make_rpms() {
    local package components folder variant all=$staged/rpm/all lists=$staged/rpm/lists payload=w19.zstdio
    command -v rpmbuild >/dev/null || die "rpmbuild is missing: run scripts/setup.sh packages"
    rm -rf "$staged/rpm"
    mkdir -p "$all" "$lists"
    for line in "${packages[@]}"; do
        read -r package components folder variant <<<"$line"
        stage "$staged/rpm/$package" "$package" "$components" lib64 share/zsh/site-functions
        install -m 644 LICENSE-APACHE LICENSE-MIT "$staged/rpm/$package/usr/share/doc/$package/"
        rpm_list "$staged/rpm/$package" >"$lists/$package"
        cp -a "$staged/rpm/$package/." "$all/"
    done
    [ -z "$fast" ] || payload=w2.gzdio
    rpmbuild --quiet -bb packaging/rpm/causeway.spec \
        --define "causeway_version $version" --define "staged $all" --define "lists $lists" \
        --define "_topdir $staged/rpm/build" --define "_rpmdir $out" \
        --define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
        --define "_binary_payload $payload" --define '_buildhost localhost' \
        --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' \
        >"$staged/rpm/build.log" 2>&1 || { cat "$staged/rpm/build.log" >&2 && die "rpmbuild failed"; }
}

# An archive of the installed files' sources, with `make install`.
make_archive() {
    local name root file all
    name=causeway-$version-$(uname -m)-linux
    root=$staged/archive/$name
    mkdir -p "$root/scripts" "$root/packaging"
    all=(daemon mx-tool mx-pages myriexpress myriexpress-dev libfabric)
    cp -r "$staged/built" "$root/built"
    cp -r "$pages" "$root/pages"
    (scripts/install-files.sh --built "$staged/built" --pages "$pages" --list "${all[@]}") |
        while IFS= read -r file; do
            [[ $file == /* ]] || install -D -m 644 "$file" "$root/$file"
        done
    cp packaging/files "$root/packaging/files"
    cp scripts/install-files.sh "$root/scripts/"
    cp packaging/archive.mk "$root/Makefile"
    cp LICENSE-APACHE LICENSE-MIT "$staged/THIRD-PARTY.gz" "$root/"
    echo "version = \"$version\"" >"$root/Cargo.toml"
    tar -C "$staged/archive" --sort=name --owner=0 --group=0 --numeric-owner \
        --mtime="@$SOURCE_DATE_EPOCH" -I "gzip -n ${fast:+-1}" -cf "$out/$name.tar.gz" "$name"
    report "$out/$name.tar.gz"
}

strip_built
for kind in "${kinds[@]}"; do
    case $kind in
    deb) make_debs ;;
    rpm) make_rpms ;;
    archive) make_archive ;;
    esac
done
ls -l "$out" | sed -n 's/^-.* \([^ ]*\)$/make-packages: made \1/p'
