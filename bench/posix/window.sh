#!/usr/bin/env bash
# Does with a program's window what a person does in a use case, from beside the program: it is not traced.
#
#   window.sh CASE DIRECTORY REPORT
#
# The program is what a `timeout` runs in DIRECTORY (cases.sh). When everything was done and the program has ended by itself,
# this adds the line "done" to REPORT; else a line that says what was in the way, after which it ends the program. A run
# without "done" does not count.
set -u
# Titles are compared as xdotool does it.
shopt -s nocasematch

directory=$2
report=$3
program=
# What was stored is newer.
stamp=$(mktemp) || exit 1
trap 'rm -f "$stamp"' EXIT
trap 'give_up "whoever drives the window had no more time"' TERM

# Whether the program runs. A number alone may be another process by now.
runs() {
  [ -n "$program" ] && [ "/proc/$program/cwd" -ef "$directory" ]
}

# Says why the run does not count, and ends the program. The `timeout` hands the signal on to all that it started.
give_up() {
  trap '' TERM
  printf '%s\n' "$1" >>"$report"
  if runs; then kill "$program"; fi
  exit 1
}

# Finds the process that runs the program, a minute at most.
find_program() {
  local look process name
  for look in $(seq 240); do
    for process in /proc/[0-9]*; do
      [ "$process/cwd" -ef "$directory" ] || continue
      # It may be gone already.
      name=
      read -r name <"$process/comm" || continue
      [ "$name" = timeout ] && program=${process#/proc/} && return
    done 2>/dev/null
    sleep 0.25
  done
  give_up "the program was not started"
}

# xdotool ends with an error when a window goes away while it looks at it, as windows of a program that starts do. So no answer
# proves nothing: questions are repeated.
ask() {
  timeout 10 xdotool "$@" 2>/dev/null
}

# Waits until a window has these words in its title, a minute at most.
appears() {
  local look
  for look in $(seq 240); do
    [ -n "$(ask search --onlyvisible --name "$1")" ] && return
    runs || give_up "the program ended before it had a window \"$1\""
    sleep 0.25
  done
  give_up "there is no window \"$1\""
}

# Gives the window with these words in its title the focus. It may be another one than a moment ago.
focus() {
  local attempt id
  for attempt in $(seq 40); do
    for id in $(ask search --onlyvisible --name "$1"); do
      ask windowactivate "$id"
    done
    sleep 0.1
    [[ $(ask getactivewindow getwindowname) == *"$1"* ]] && return
    runs || give_up "the program ended before all was done in its window \"$1\""
    sleep 0.15
  done
  give_up "the window \"$1\" does not get the focus"
}

# Keys for the window that has the focus, with the time that a person takes. They come from the screen, since programs
# ignore what another program sends to their window.
keys() {
  local key
  for key; do
    ask key --clearmodifiers "$key"
    sleep 0.3
  done
}

# Waits until one of these files, or of those in these folders, was stored.
stored() {
  local look
  for look in $(seq 40); do
    [ -n "$(find "$@" -type f -newer "$stamp" -print -quit 2>/dev/null)" ] && return
    sleep 0.25
  done
  give_up "nothing was stored"
}

# Closes a window by a key of its program, and waits for the program's end, half a minute at most.
quit() {
  local look
  focus "$1"
  keys "$2"
  for look in $(seq 120); do
    runs || return 0
    sleep 0.25
  done
  give_up "the program does not end by $2"
}

find_program
case $1 in
  # The first folder that differs is opened, a change taken over, and stored.
  diff)
    appears 'Meld'
    sleep 3
    focus 'Meld'
    keys Down Down Return
    sleep 3
    keys alt+Right ctrl+s
    sleep 1
    stored "$directory/a" "$directory/b"
    quit 'Meld' ctrl+q
    ;;
  # Cells are filled, and the sheet is stored.
  office)
    appears 'sheet.ods'
    sleep 3
    focus 'sheet.ods'
    for row in $(seq 20); do
      ask type --delay 10 "$row"$'\t'"text $row"$'\t'"=A$row*3"$'\n'
    done
    keys ctrl+s
    sleep 3
    stored "$directory/sheet.ods"
    quit 'sheet.ods' ctrl+q
    ;;
  # A page is opened by its address, and a link followed.
  chromium | firefox)
    appears 'first page'
    sleep 2
    focus 'first page'
    keys Tab Return
    appears 'second page'
    sleep 1
    focus 'second page'
    keys ctrl+l
    ask type --delay 10 "file://$directory/page.html"
    keys Return
    appears 'first page'
    sleep 1
    # Each ends with its last window.
    case $1 in
      chromium) quit 'first page' ctrl+shift+w ;;
      firefox) quit 'first page' ctrl+q ;;
    esac
    ;;
  *)
    give_up "window.sh knows no case $1"
    ;;
esac
printf 'done\n' >>"$report"
