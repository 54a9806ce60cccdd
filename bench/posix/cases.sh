# The use cases. For each: prepare_NAME gets what it needs, once, or says why not; case_NAME says what is done in the new
# directory before each run (set_up, for the shell), what is run there (command), and the study's table (study).
# shellcheck shell=bash disable=SC2034 # set for ./run

# What runs share: sources and packages that were fetched, outside of the platforms.
posix_store() {
  local store=${CARGO_TARGET_DIR:-target}/posix-store
  mkdir -p "$store"
  (cd "$store" && pwd)
}

# Installs a package unless a command is there; a word on why not goes to standard error.
needs() {
  command -v "$1" >/dev/null && return
  (install_packages "$2") >&2 && command -v "$1" >/dev/null && return
  echo "there is no $1; install the package $2" >&2
  return 1
}

# Installation of a package. The study had a graphical software centre; what is left without it is dpkg, into a root
# directory of its own on the platform, so that nothing of the machine changes.
prepare_installation() {
  needs dpkg-deb dpkg || return
  local store
  store=$(posix_store)
  [ -f "$store/package.deb" ] && return
  local tree
  tree=$(mktemp -d)
  mkdir -p "$tree/DEBIAN" "$tree/usr/share/holdfast-posix"
  # A thousand small files, as applications have them.
  local index
  for index in $(seq 1000); do
    head -c $((index * 13 % 9000 + 200)) /dev/urandom >"$tree/usr/share/holdfast-posix/file-$index"
  done
  printf 'Package: holdfast-posix\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: a package to install\n' \
    >"$tree/DEBIAN/control"
  dpkg-deb --root-owner-group -b "$tree" "$store/package.deb.part" >&2 && mv "$store/package.deb.part" "$store/package.deb"
  local built=$?
  rm -rf "$tree"
  return "$built"
}

case_installation() {
  set_up='mkdir -p root/var/lib/dpkg/info root/var/lib/dpkg/updates root/var/lib/dpkg/triggers; : >root/var/lib/dpkg/status; : >root/var/lib/dpkg/available'
  command=(dpkg --force-not-root --force-script-chrootless --root=root --install "$(posix_store)/package.deb")
}

# Two folders are compared and the difference is shown.
prepare_diff() {
  needs git git || return
}

case_diff() {
  set_up='mkdir a b; for i in $(seq 400); do seq $i $((i * 3 + 50)) >a/$i; sed "s/7$/x/" a/$i >b/$i; done'
  # It ends with 1 when there are differences.
  command=(sh -c 'git --no-pager diff --no-index --stat a b >/dev/null; exit 0')
}

# A page of three hundred small files, drawn to a picture.
page='for i in $(seq 300); do printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"20\" height=\"20\"><circle cx=\"10\" cy=\"10\" r=\"%d\"/></svg>" $((i % 9 + 1)) >$i.svg; done; { echo "<html><body>"; for i in $(seq 300); do echo "<p>part $i <img src=$i.svg>"; done; } >page.html'

prepare_browser() {
  needs chromium chromium || return
}

case_browser() {
  set_up=$page
  command=(chromium --headless --no-sandbox --disable-gpu --user-data-dir=profile --screenshot=page.png page.html)
}

prepare_dillo() {
  needs dillo dillo && needs xvfb-run xvfb || return
}

case_dillo() {
  set_up=$page
  study=browser
  # It has no command to draw a page and end.
  command=(sh -c 'HOME=$PWD xvfb-run -a timeout 5 dillo page.html; exit 0')
}

prepare_office() {
  needs soffice libreoffice-calc-nogui || return
}

case_office() {
  set_up='seq 5000 | awk "{print \$1\",\"\$1*3\",text \"\$1}" >sheet.csv'
  command=(sh -c 'soffice --headless -env:UserInstallation="file://$PWD/profile" --convert-to ods sheet.csv')
}

# configure and make of a real project, from the distribution's source package: SQLite, which the tests need as well.
prepare_compilation() {
  needs make make && needs cc build-essential && needs tclsh tcl || return
  fetch_sqlite >&2
  [ -x "$(posix_source)/configure" ] && return
  echo "there is no source package of sqlite3; the sources of apt must be reachable" >&2
  return 1
}

posix_source() {
  (cd "${CARGO_TARGET_DIR:-target}/sqlite/source" && pwd)
}

case_compilation() {
  set_up="cp -r '$(posix_source)' source"
  command=(sh -c 'cd source && ./configure >/dev/null 2>&1 && make >/dev/null 2>&1')
}
