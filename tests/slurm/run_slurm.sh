#!/usr/bin/env bash
# run_slurm.sh BUILD: the job scripts under a Slurm of its own on this machine (as root; packages slurm-wlm and munge): an array of 3
# parts and a merge that depends on it, parts of dedup, and a training job that is stopped in the middle, queued again, and ends with the bits of
# one that was not stopped; a sweep by an array.
set -eu
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "needs root" >&2 && exit 77; }
for program in slurmctld slurmd munged mpirun; do
    command -v $program >/dev/null || { echo "missing: apt-get install slurm-wlm munge openmpi-bin" >&2 && exit 71; }
done
work=$(mktemp -d) build=$(realpath "$1") scripts=$PWD/scripts
export SLURM_CONF=$work/slurm.conf BIN=$build/bin DATA=$PWD/tests/data
trap 'kill $(cat $work/*.pid) 2>/dev/null; rm -rf "$work"' EXIT
cp tests/cli/helpers.bash "$work" && cd "$work" && mkdir state spool
cat >slurm.conf <<END
ClusterName=test
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=root
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES
END
if ! munge -n >/dev/null 2>&1; then # munged of this machine may be running already
    install -d -o munge /run/munge && setpriv --reuid=munge --regid=munge --clear-groups munged --pid-file=/run/munge/munged.pid
fi
slurmctld && slurmd
. ./helpers.bash
is_ready() { [ -n "$(sinfo -h -t idle -o %T 2>/dev/null)" ]; }
wait_until is_ready
ln -s "$build" build
queue_is_empty() { queued=$(squeue -h) && [ -z "$queued" ]; } # a squeue that fails prints nothing

mkdir corpus
for i in $(seq 7); do seq "$i" $((i * 170)) >"corpus/$i.txt"; done
job=$(sbatch --parsable --array=1-3 --cpus-per-task=1 "$scripts/slurm/tokenize.sbatch" parts --val 0.3 corpus)
sbatch --dependency="afterok:$job" --wrap='build/bin/millrace merge -o data parts/part-*' >/dev/null
wait_until queue_is_empty
build/bin/millrace verify -q data
[ "$(ls parts | wc -l)" = 3 ]
echo "passed: an array of 3 parts and a merge that depends on it"

build/bin/millrace dedup -q --similar 0.8 --report whole.jsonl -o whole data
cat >first.sh <<END
#!/bin/bash
if [ "\$SLURM_ARRAY_TASK_ID" = 1 ] && [ -z "\$SLURM_RESTART_COUNT" ]; then # is queued again while it runs
    mkdir -p distinct && : >distinct/.bands-1-of-3.tmp.99999999
    scontrol requeue "\$SLURM_JOB_ID" && exec tail -f /dev/null
fi
exec bash "$scripts/slurm/parts.sbatch" "\$@"
END
dedup="dedup --similar 0.8 -o distinct data"
job=$(sbatch --parsable --array=1-3 --cpus-per-task=1 --requeue first.sh $dedup)
sbatch --dependency="afterany:$job" --wrap="build/bin/millrace $dedup --report removed.jsonl" >/dev/null
is_first_queued() { [ -e distinct/.bands-1-of-3.tmp.99999999 ] && [ "$(squeue -h -j "${job}_1" -o %T)" = PENDING ]; }
wait_until is_first_queued
scontrol update jobid="${job}_1" StartTime=now
wait_until queue_is_empty
cmp removed.jsonl whole.jsonl
diff -r -x '*-of-*' distinct whole
[ ! -e distinct/.bands-1-of-3.tmp.99999999 ]
job=$(sbatch --parsable --array=1-2 --cpus-per-task=1 --wrap='exec build/bin/millrace dedup --part $SLURM_ARRAY_TASK_ID/3 -o two data')
sbatch --dependency="afterany:$job" --output=two.out --wrap='build/bin/millrace dedup -o two data; echo $?' >/dev/null
wait_until queue_is_empty
[[ "$(cat two.out)" == *"of 3 parts in 'two' 2 are done; missing: 3"*66 ]]
[ ! -e two/dataset.jsonl ]
echo "passed: parts of dedup, of which one was queued again, and the job that depends on them; without one of the parts it names that one"

write_tiny_conf tiny.conf
training=(tiny.conf --dataset="$work/data" --max_iters=300 --eval_interval=0 --sample_tokens=0)
job=$(sbatch --parsable --ntasks=2 --cpus-per-task=1 --output=train.out "$scripts/slurm/train.sbatch" "${training[@]}" --out_dir=run)
wait_for_steps run 5
scancel --signal=USR1 "$job"
is_queued_again() { grep -q 'stopped at step' train.out && [ "$(squeue -h -j "$job" -o %T)" = PENDING ]; }
wait_until is_queued_again
scontrol update jobid="$job" StartTime=now
wait_until queue_is_empty
sbatch --ntasks=2 --cpus-per-task=1 "$scripts/slurm/train.sbatch" "${training[@]}" --out_dir=whole >/dev/null
wait_until queue_is_empty
same_run whole run 300
echo "passed: a training job that was queued again in the middle has the bits of one that was not"

sbatch --time=60 --ntasks=1 --cpus-per-task=1 "$scripts/slurm/train.sbatch" "${training[@]}" --out_dir=timed --until=job --max_iters=10 >/dev/null
wait_until queue_is_empty
left=$(jq -r 'select(.until) | .until_at' timed/metrics.jsonl)
[ $((left - $(date +%s))) -gt 3000 ] && [ $((left - $(date +%s))) -le 3600 ]
echo "passed: a run that is to be finished by the end of its job"

job=$(sbatch --parsable --array=1-2 --cpus-per-task=1 --output=sweep.%a "$scripts/slurm/sweep.sbatch" sweep learning_rate=1e-9,1e-3 "${training[@]}" \
    --eval_interval=100 --eval_iters=2)
wait_for_steps sweep/learning_rate=1e-3 5
scancel --signal=USR1 "${job}_2" # the last task, whose job has the id of the array
is_second_queued() { grep -q 'stopped at step' sweep.2 && [ "$(squeue -h -j "${job}_2" -o %T)" = PENDING ]; }
wait_until is_second_queued
scontrol update jobid="${job}_2" StartTime=now
wait_until queue_is_empty
[ "$(grep -c 'resuming at step' sweep.1 || true) $(grep -c 'resuming at step' sweep.2)" = "0 1" ]
cp -r run sweep/unevaluated=1
sbatch --wait --cpus-per-task=1 --output=best "$scripts/slurm/sweep.sbatch" sweep >/dev/null
[ "$(sed -n '1s/.* //p' best) $(wc -l <best)" = "sweep/learning_rate=1e-3 2" ] && [ -s sweep/runs.html ]
echo "passed: a sweep, of which one task of the array was queued again, and its best run"
