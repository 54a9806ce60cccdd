# Profanity, a chat client for terminals, with an XMPP server on 127.0.0.1: two users write forty
# messages each to one another. The program of the first is the one that is measured.

port=52221
messages=40
mkdir -p "$scratch/server/certs" "$scratch/other"
cat >"$scratch/server/prosody.cfg.lua" <<END
pidfile = "$scratch/server/prosody.pid"
data_path = "$scratch/server"
certificates = "certs"
interfaces = { "127.0.0.1" }
c2s_ports = { $port }
modules_enabled = { "roster", "saslauth", "disco", "ping" }
modules_disabled = { "s2s", "tls", "offline" }
authentication = "internal_plain"
c2s_require_encryption = false
allow_unencrypted_plain_auth = true
run_as_root = true
log = { info = "$scratch/server/prosody.log" }
VirtualHost "localhost"
END
server="--config $scratch/server/prosody.cfg.lua"
if [ "$phase" = setup ]; then
    for user in first second; do
        # shellcheck disable=SC2086
        prosodyctl $server register $user localhost secret >"$scratch/register.log" 2>&1
    done
fi
# shellcheck disable=SC2086
prosody -F $server >"$scratch/server.log" 2>&1 &
until_true 100 "the chat server" listens $port

terminal="tmux -S $scratch/runtime/tmux"
for user in first second; do
    place=$home words=$HOLDFAST_WRAP
    [ $user = second ] && place=$scratch/other words=
    if [ "$phase" = setup ]; then
        mkdir -p "$place/.config/profanity" "$place/.local/share/profanity"
        cat >"$place/.config/profanity/profrc" <<END
[connection]
account=$user
[logging]
chlog=true
dblog=on
[ui]
splash=false
END
        cat >"$place/.local/share/profanity/accounts" <<END
[$user]
enabled=true
jid=$user@localhost
server=127.0.0.1
port=$port
password=secret
resource=here
tls.policy=disable
END
    fi
    # shellcheck disable=SC2086
    $terminal new-session -d -s $user -x 100 -y 30 \
        "HOME=$place XDG_DATA_HOME=$place/.local/share XDG_CONFIG_HOME=$place/.config \
         XDG_CACHE_HOME=$place/.cache TERM=xterm exec $words profanity"
done

shows() {
    $terminal capture-pane -p -t "$1" | grep -qF "$2"
}
has_closed() {
    ! $terminal has-session -t "$1"
}
for user in first second; do
    until_true 300 "$user to be online" shows $user "[online]"
done
if [ "$phase" = use ]; then
    # A message opens the window of its sender only.
    $terminal send-keys -t first "/msg second@localhost question 1" Enter
    until_true 100 "the first message" shows second "first@localhost"
    $terminal send-keys -t second "/msg first@localhost answer 1" Enter
    until_true 100 "the first answer" shows first "answer 1"
    for number in $(seq 2 $messages); do
        $terminal send-keys -t first "question $number of the morning" Enter
        until_true 100 "question $number" shows second "question $number "
        $terminal send-keys -t second "answer $number in the evening" Enter
        until_true 100 "answer $number" shows first "answer $number "
        sleep 0.2
    done
fi
for user in first second; do
    $terminal send-keys -t $user "/quit" Enter
    until_true 100 "the end of the program of $user" has_closed $user
done
