# What the drivers of all programs need. They run in name spaces of their own: what they start ends
# with them, and no network but their own 127.0.0.1 is there.
#
# A driver is called with a phase (`setup`: the program's first start; `use`: what is measured), the
# home of the program and a folder for everything else. HOLDFAST_WRAP has the words that the program
# is started behind.

set -euo pipefail
phase=$1 home=$2 scratch=$3
ip link set lo up
mkdir -p "$home" "$scratch/runtime"
chmod 700 "$scratch/runtime"
export XDG_RUNTIME_DIR=$scratch/runtime
# Shaders of a screen that is not there are not the program's data.
export MESA_SHADER_CACHE_DISABLE=true NO_AT_BRIDGE=1 LC_ALL=C.UTF-8

# Runs a command in the program's home.
at_home() {
    HOME=$home XDG_DATA_HOME=$home/.local/share XDG_CONFIG_HOME=$home/.config \
        XDG_CACHE_HOME=$home/.cache "$@"
}

# A screen without a monitor.
start_screen() {
    mkfifo "$scratch/display"
    Xvfb -displayfd 4 -screen 0 1920x1080x24 -nolisten tcp 4>"$scratch/display" 2>"$scratch/xvfb.log" &
    local number
    read -r number <"$scratch/display"
    export DISPLAY=:$number
    rm "$scratch/display"
}

# Waits for at most so many tenths of a second until a command succeeds.
until_true() {
    local tenths=$1 what=$2
    shift 2
    for _ in $(seq "$tenths"); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    echo "waited $((tenths / 10)) s for $what" >&2
    exit 1
}

has_window() {
    xdotool search --onlyvisible --name "$1"
}

# A program of ours, by its number, has ended.
has_ended() {
    ! kill -0 "$1" 2>/dev/null
}

# Whether somebody listens on a port of 127.0.0.1.
listens() {
    (exec 9<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}
