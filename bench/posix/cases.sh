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

# apt installs a set of packages (some sixty, 40 MB, with their scripts) into a root of its own on the platform, so that
# nothing of the machine changes. The study had a graphical software centre; what installs is the same. Root changes the
# root directory.
installed_packages='git python3 sqlite3 vim-nox'

prepare_installation() {
  [ "$(id -u)" -eq 0 ] || {
    echo "an installation into a root of its own needs root" >&2
    return 1
  }
  needs debootstrap debootstrap || return
  local store
  store=$(posix_store)
  [ -f "$store/root.tar" ] && return
  local tree
  tree=$(mktemp -d)
  # The same release as the machine's; its packages are fetched here, and not in a run.
  # shellcheck disable=SC2086 # one word is one package
  (
    # shellcheck source=/dev/null
    . /etc/os-release &&
      debootstrap --variant=minbase "$VERSION_CODENAME" "$tree" &&
      cp /etc/resolv.conf "$tree/etc/resolv.conf" &&
      chroot "$tree" apt-get update &&
      chroot "$tree" apt-get install -y --no-install-recommends --download-only $installed_packages &&
      tar -C "$tree" -cf "$store/root.tar.part" . &&
      mv "$store/root.tar.part" "$store/root.tar"
  ) >&2
  local built=$?
  rm -rf "$tree"
  [ "$built" -eq 0 ] || echo "a root directory cannot be made; the packages of apt must be reachable" >&2
  return "$built"
}

case_installation() {
  set_up="mkdir root && tar -C root -xf '$(posix_store)/root.tar'"
  # shellcheck disable=SC2206 # one word is one package
  command=(env DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot root apt-get install -y -qq --no-download
    --no-install-recommends -o APT::Sandbox::User=root $installed_packages)
}

# A window for a program, and somebody at it: the use cases with an interface are driven by window.sh, which is started
# before a run and is not traced. A run counts if window.sh says that it was done (./run looks); so a program may end as it
# likes, and one that ran out of time does not count.
needs_window() {
  needs Xvfb xvfb && needs xdotool xdotool && needs openbox openbox
}

# The command that starts window.sh. It runs outside of the directory, which is removed after the run.
somebody_at() {
  printf 'place=$PWD; (cd / && exec setsid timeout 120 %q %q "$place" %q) >>%q 2>&1 </dev/null &' \
    "$posix_here/window.sh" "$1" "$driven" "$out/window.log"
}

# Meld compares two folders; a change is taken over and stored.
prepare_diff() {
  needs meld meld && needs_window || return
}

case_diff() {
  set_up='mkdir a b home; for i in $(seq 400); do seq $i $((i * 3 + 50)) >a/$i; sed "s/7$/x/" a/$i >b/$i; done; '
  set_up+=$(somebody_at diff)
  has_window=yes
  command=(sh -c 'HOME=$PWD/home timeout -k 10 150 meld a b 2>/dev/null; exit 0')
}

# A page of three hundred small files, drawn to a picture.
page='for i in $(seq 300); do printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"20\" height=\"20\"><circle cx=\"10\" cy=\"10\" r=\"%d\"/></svg>" $((i % 9 + 1)) >$i.svg; done; { echo "<html><body>"; for i in $(seq 300); do echo "<p>part $i <img src=$i.svg>"; done; } >page.html'

# Two pages with a link, with titles by which window.sh knows them.
site=$page'; { echo "<title>first page</title><a href=second.html>on</a>"; cat page.html; } >first.html; mv first.html page.html; { echo "<title>second page</title>"; cat page.html | sed 1d; } >second.html; mkdir home; '

prepare_chromium() {
  needs chromium chromium && needs_window || return
}

case_chromium() {
  set_up=$site$(somebody_at chromium)
  has_window=yes
  study=browser
  command=(sh -c 'HOME=$PWD/home timeout -k 10 150 chromium --no-sandbox --disable-gpu --no-first-run --no-default-browser-check --disable-background-networking --disable-component-update --disable-sync --password-store=basic --user-data-dir=profile "file://$PWD/page.html" >/dev/null 2>&1; exit 0')
}

prepare_firefox() {
  needs firefox-esr firefox-esr && needs_window || return
}

case_firefox() {
  set_up=$site'mkdir profile; printf "%s\n" "user_pref(\"datareporting.policy.dataSubmissionEnabled\", false);" "user_pref(\"browser.aboutwelcome.enabled\", false);" "user_pref(\"browser.shell.checkDefaultBrowser\", false);" "user_pref(\"browser.warnOnQuitShortcut\", false);" "user_pref(\"browser.warnOnQuit\", false);" >profile/user.js; '$(somebody_at firefox)
  has_window=yes
  study=browser
  command=(sh -c 'HOME=$PWD/home timeout -k 10 150 firefox-esr --no-remote --profile "$PWD/profile" "file://$PWD/page.html" >/dev/null 2>&1; exit 0')
}

# The same page by a browser of few parts.
prepare_dillo() {
  needs dillo dillo && needs xvfb-run xvfb || return
}

case_dillo() {
  set_up=$page
  study=browser
  # It has no command to draw a page and end.
  command=(sh -c 'HOME=$PWD xvfb-run -a timeout 5 dillo page.html; exit 0')
}

# LibreOffice Calc with a sheet that is filled and stored.
prepare_office() {
  needs soffice libreoffice-calc && needs_window || return
  local store
  store=$(posix_store)
  [ -f "$store/sheet.ods" ] && return
  local folder
  folder=$(mktemp -d)
  seq 5000 | awk '{print $1","$1*3",text "$1}' >"$folder/sheet.csv"
  (cd "$folder" && HOME=$folder timeout 120 soffice --headless "-env:UserInstallation=file://$folder/profile" \
    --convert-to ods sheet.csv) >&2 && mv "$folder/sheet.ods" "$store/sheet.ods"
  local made=$?
  rm -rf "$folder"
  return "$made"
}

case_office() {
  set_up="mkdir -p home profile/user; cp '$posix_here/office.xcu' profile/user/registrymodifications.xcu; "
  set_up+="cp '$(posix_store)/sheet.ods' .; $(somebody_at office)"
  has_window=yes
  command=(sh -c 'HOME=$PWD/home timeout -k 10 150 soffice --norestore --nologo --calc "-env:UserInstallation=file://$PWD/profile" sheet.ods >/dev/null 2>&1; exit 0')
}

# The study's project, in its three steps: each is a case of its own, on what the one before left.
prepare_project() {
  needs make make && needs cc build-essential && needs autoreconf autoconf && needs automake automake &&
    needs libtoolize libtool && needs pkg-config pkg-config || return
  local store
  store=$(posix_store)
  [ -f "$store/project.tar" ] && return
  local folder
  folder=$(mktemp -d)
  # shellcheck disable=SC2046
  (
    set -e
    install_packages uuid-dev libblkid-dev
    download_source f2fs-tools "$folder"
    mkdir "$folder/source"
    tar -xf "$folder"/f2fs-tools_*.orig.tar.* -C "$folder/source" --strip-components=1
    cd "$folder/source"
    tar -cf "$store/project.tar" .
    autoreconf --install
    tar -cf "$store/configure.tar" .
    ./configure --without-selinux
    tar -cf "$store/make.tar" .
  ) >&2
  local made=$?
  rm -rf "$folder"
  [ "$made" -eq 0 ] || {
    rm -f "$store/project.tar"
    echo "there is no source package of f2fs-tools; the sources of apt must be reachable" >&2
  }
  return "$made"
}

prepare_autoreconf() { prepare_project; }
prepare_configure() { prepare_project; }
prepare_make() { prepare_project; }

case_autoreconf() {
  set_up="tar -xf '$(posix_store)/project.tar'"
  study=compilation
  command=(autoreconf --install)
}

case_configure() {
  set_up="tar -xf '$(posix_store)/configure.tar'"
  study=compilation
  command=(sh -c './configure --without-selinux >/dev/null 2>&1')
}

case_make() {
  set_up="tar -xf '$(posix_store)/make.tar'"
  study=compilation
  command=(sh -c 'make >/dev/null 2>&1')
}
