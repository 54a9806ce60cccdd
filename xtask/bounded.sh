#!/bin/sh
# bounded.sh SECONDS COMMAND...: runs a command with all its children in a process group of their own, and ends all of
# them when it takes longer (exit status 124), or when whoever started this is interrupted: the terminal's Ctrl-C does
# not reach that group.
seconds=$1
shift
child=
interrupted=
# Set before there is anything to end: an interrupt that comes in between is not lost.
trap 'interrupted=yes; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' INT TERM HUP
timeout --kill-after=10 "$seconds" "$@" &
child=$!
[ -z "$interrupted" ] || kill -TERM "$child" 2>/dev/null
wait "$child"
status=$?
# A signal ends the waiting, not the command.
while kill -0 "$child" 2>/dev/null; do
  wait "$child"
  status=$?
done
exit "$status"
