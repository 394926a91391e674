# The service millrace-loader under systemd, as docs/install.md sets it up. Run by boot.sh in a system where the package is installed.
show() { systemctl show -P "$1" millrace-loader; }
reloads() { journalctl -o cat -u millrace-loader | grep -c "files have been opened again" || true; }
fails() { ! "$@"; }
trains() { # STEPS: a run over tcp with the trainer's key
    millrace train /usr/share/millrace/config/demo.conf --n_layer=1 --n_head=2 --n_embd=16 --block_size=16 --batch_size=2 --device=cpu --threads=1 \
        --gradient_accumulation_steps=1 --eval_interval=5 --eval_iters=1 --sample_tokens=2 --dropout=0 --lr_decay_iters=20 --warmup_iters=1 --quiet \
        --max_iters="$1" --out_dir=run --loader=tcp://127.0.0.1:5555 --loader_key="$(cat loader.public)" --key_file=trainer.key
}
mkdir -p /srv/work && cd /srv/work
mkdir books
for i in $(seq 40); do seq "$i" 400 >books/"$i".txt; done
millrace tokenize --quiet --val 0.2 -o data books

# Installed: nothing runs, and a start without a dataset is an error that names it.
[ "$(show ActiveState)" = inactive ]
fails systemctl is-enabled millrace-loader
fails systemctl start millrace-loader
journalctl --sync
journalctl -o cat -u millrace-loader | grep "cannot open ./var/lib/millrace"
systemctl stop millrace-loader

cp -r data /var/lib/millrace/data
millrace keygen /var/lib/millrace/loader.key >loader.public
millrace keygen trainer.key >/var/lib/millrace/allowed
systemctl enable --now millrace-loader || { journalctl -o cat -u millrace-loader && exit 1; }
[ "$(show ActiveState)" = active ] # Type=notify: systemctl has waited for READY=1
pid=$(show MainPID)
user=$(stat -c %u /proc/"$pid")
[ "$user" != 0 ]
grep -x "NoNewPrivs:.1" /proc/"$pid"/status
grep -x "Seccomp:.2" /proc/"$pid"/status
grep -x "CapEff:.0*" /proc/"$pid"/status
trains 5

# A loader that is killed is started again, and the run goes on.
kill -9 "$pid"
while [ "$(show MainPID)" = "$pid" ] || [ "$(show ActiveState)" != active ]; do sleep 0.1; done
trains 10

# A swap is kept in the state folder, also after a restart.
cp -r data /var/lib/millrace/other
millrace swap /var/lib/millrace/other --endpoint tcp://127.0.0.1:5555 --key /var/lib/millrace/loader.key
[ -s /var/lib/millrace/served ]
systemctl restart millrace-loader
millrace serve-status --endpoint tcp://127.0.0.1:5555 --key /var/lib/millrace/loader.key | grep other
before=$(reloads)
systemctl reload millrace-loader
while [ "$(reloads)" = "$before" ]; do sleep 0.1; done
trains 15

systemctl disable --now millrace-loader
[ "$(show ActiveState)" = inactive ]
[ "$(show Result)" = success ]
exposure=$(systemd-analyze security --no-pager millrace-loader | sed -n 's/.*exposure level for .*: \([0-9]*\)\..*/\1/p')
[ "$exposure" -le 2 ]
