# Chromium: as in the paper, 30 pages one by one. They come from a server on 127.0.0.1, each with
# pictures, a cookie, and rows in local storage and IndexedDB.

start_screen
/usr/bin/python3 "$scratch/pages.py" 8080 &
until_true 100 "the server of pages" listens 8080

export home scratch phase
export -f at_home until_true has_window has_ended
# shellcheck disable=SC2016
dbus-run-session -- bash -euo pipefail -c '
    # A name of a page ends before the next one begins.
    at_home $HOLDFAST_WRAP chromium --no-sandbox --no-first-run --no-default-browser-check \
        --password-store=basic --disable-gpu --window-size=1100,800 \
        http://127.0.0.1:8080/page/0 >"$scratch/program.log" 2>&1 &
    program=$!
    until_true 600 "the first page" has_window "Page 0 "
    if [ "$phase" = use ]; then
        for number in $(seq 1 30); do
            xdotool key ctrl+l
            xdotool type --delay 2 "127.0.0.1:8080/page/$number"
            xdotool key Return
            until_true 200 "page $number" has_window "Page $number "
            sleep 1
        done
    else
        sleep 10
    fi
    xdotool key ctrl+shift+w
    until_true 300 "the end of Chromium" has_ended "$program"
'
