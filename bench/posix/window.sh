#!/usr/bin/env bash
# Does with a program's window what a person does in a use case, from beside the program: it is not traced.
#
#   window.sh CASE DIRECTORY
#
# It waits for the window (60 s at most), types, and closes it; whatever happens it ends within two minutes, and so does
# the program: what does not close is ended by the process that owns the window.
set -u
cd "$2" || exit 1

# Ends the program of a window that did not close. Only a process that runs in the case's directory is ended.
end() {
  local id=$1 pid
  pid=$(xdotool getwindowpid "$id" 2>/dev/null) || return 0
  [ "$(readlink "/proc/$pid/cwd" 2>/dev/null)" = "$PWD" ] && kill "$pid" 2>/dev/null
}

# The window whose title has these words. Without one in time the log says so, and this ends.
window() {
  local found
  found=$(timeout 60 xdotool search --sync --onlyvisible --name "$1" 2>/dev/null | tail -1)
  [ -n "$found" ] && echo "$found" && return
  echo "there is no window \"$1\"" >&2
  return 1
}

# Keys for the window that has the focus, with the time that a person takes. They come from the screen, since programs
# ignore what another program sends to their window.
keys() {
  local key
  for key; do
    xdotool key --clearmodifiers "$key" 2>/dev/null
    sleep 0.3
  done
}

# Gives a window the focus.
focus() {
  timeout 10 xdotool windowactivate --sync "$1" 2>/dev/null
}

# Closes a window by a key of its program, and waits for it.
quit() {
  local id=$1 key=$2 waited
  focus "$id"
  keys "$key"
  for waited in $(seq 40); do
    xdotool getwindowname "$id" >/dev/null 2>&1 || return 0
    sleep 0.25
  done
  end "$id"
}

case $1 in
  # The first folder that differs is opened, a change taken over, and stored.
  diff)
    id=$(window 'Meld') || exit 1
    sleep 3
    focus "$id"
    keys Down Down Return
    sleep 3
    keys alt+Right ctrl+s
    sleep 1
    quit "$id" ctrl+q
    ;;
  # Cells are filled, and the sheet is stored.
  office)
    id=$(window 'sheet.ods') || exit 1
    sleep 3
    focus "$id"
    for row in $(seq 20); do
      xdotool type --delay 10 "$row"$'\t'"text $row"$'\t'"=A$row*3"$'\n'
    done
    keys ctrl+s
    sleep 3
    quit "$id" ctrl+q
    ;;
  # A page is opened by its address, and a link followed.
  chromium | firefox)
    id=$(window 'first page') || exit 1
    sleep 2
    focus "$id"
    keys Tab Return
    id=$(window 'second page') || exit 1
    sleep 1
    focus "$id"
    keys ctrl+l
    xdotool type --delay 10 "file://$PWD/page.html"
    keys Return
    id=$(window 'first page') || exit 1
    sleep 1
    quit "$id" ctrl+shift+q
    ;;
  *)
    echo "window.sh knows no case $1" >&2
    exit 2
    ;;
esac
