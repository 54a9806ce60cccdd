#!/bin/sh
# bounded.sh SECONDS COMMAND...: runs a command with all its children in a process group of their own, and ends all of
# them when it takes longer (exit status 124), or when whoever started this is interrupted: the terminal's Ctrl-C does
# not reach that group.
seconds=$1
shift
child=
interrupted=
# The whole group: `timeout` itself passes nothing on before it knows of its child, which may run by then. Before there is a
# group there is no child either.
end() {
  kill -TERM "-$child" 2>/dev/null || kill -TERM "$child" 2>/dev/null
}
# Set before there is anything to end: an interrupt that comes in between is not lost.
trap 'interrupted=yes; [ -z "$child" ] || end' INT TERM HUP
timeout --kill-after=10 "$seconds" "$@" &
child=$!
[ -z "$interrupted" ] || end
wait "$child"
status=$?
# A signal ends the waiting, not the command.
while kill -0 "$child" 2>/dev/null; do
  wait "$child"
  status=$?
done
exit "$status"
