# Geary, with an IMAP server on 127.0.0.1: after 60 mails that were there at its first start, nine
# more come, three at a time; each is read; three words are searched for.

port=51430
inbox=$scratch/mail/Maildir
# The mails of the server outlive its phases.
umask 022
mkdir -p "$inbox"/{new,cur,tmp} "$scratch/server"
chmod 755 "$scratch"
[ "$phase" = setup ] && /usr/bin/python3 "$scratch/mail.py" "$inbox" 0 60
chown -R nobody "$scratch/mail"
cat >"$scratch/dovecot.conf" <<END
base_dir = $scratch/server
state_dir = $scratch/server
log_path = $scratch/dovecot.log
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
first_valid_uid = 1
mail_location = maildir:$inbox
service imap-login {
  inet_listener imap {
    port = $port
  }
  inet_listener imaps {
    port = 0
  }
}
passdb {
  driver = static
  args = password=secret
}
userdb {
  driver = static
  args = uid=nobody gid=nogroup home=$scratch/mail
}
END
dovecot -F -c "$scratch/dovecot.conf" &
until_true 100 "the mail server" listens $port

account=$home/.config/geary/account_01
if [ "$phase" = setup ]; then
    mkdir -p "$account"
    cat >"$account/geary.ini" <<END
[Metadata]
version=1
status=enabled

[Account]
ordinal=1
label=
prefetch_days=-1
save_drafts=false
save_sent=false
service_provider=other
sender_mailboxes=User <user@localhost>;

[Incoming]
login=user
remember_password=true
host=127.0.0.1
port=$port
transport_security=none
credentials=custom

[Outgoing]
remember_password=true
host=127.0.0.1
port=51425
transport_security=none
credentials=none
END
fi

start_screen
export home scratch phase inbox
export -f at_home until_true has_window has_ended
# shellcheck disable=SC2016
XDG_DATA_HOME=$scratch/keyrings dbus-run-session -- bash -euo pipefail -c '
    mkdir -p "$XDG_DATA_HOME"
    printf secret | gnome-keyring-daemon --unlock --components=secrets >/dev/null 2>&1
    printf secret | secret-tool store --label=mail xdg:schema org.gnome.Geary \
        proto IMAP host 127.0.0.1 login user
    export GSETTINGS_BACKEND=memory
    at_home $HOLDFAST_WRAP geary >"$scratch/program.log" 2>&1 &
    program=$!
    until_true 600 "the window of Geary" has_window Inbox
    # All that the server has, the bodies included.
    sleep 12
    if [ "$phase" = use ]; then
        # Without a window manager nobody else gives it the keyboard.
        window=$(has_window Inbox | tail -n 1)
        xdotool windowfocus "$window"
        # Wide enough for the mail beside the list: what is shown is read.
        xdotool windowmove "$window" 0 0 windowsize "$window" 1800 1000
        sleep 1
        for round in 0 1 2; do
            /usr/bin/python3 "$scratch/mail.py" "$inbox" $((60 + round * 3)) 3
            sleep 3
            # The list of conversations has the focus; each step shows the next one.
            for _ in 1 2 3; do
                xdotool key Down
                sleep 1
            done
        done
        for word in river engine summer; do
            xdotool key ctrl+s
            xdotool type --delay 20 "$word"
            sleep 2
            xdotool key Escape
            sleep 1
        done
    fi
    xdotool key ctrl+q
    until_true 300 "the end of Geary" has_ended "$program"
'
