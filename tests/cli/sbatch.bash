# Slurm's sbatch, as far as the commands of the documentation need it: the tasks of an array one after another, or a wrapped command.
sbatch() {
    case $1 in
    --parsable) # --array=1-N SCRIPT ARGUMENT..., or --wrap=COMMAND
        local last=${2#--array=1-} id
        [[ "$3" != --wrap=* ]] || set -- "$1" "$2" -c "${3#--wrap=}"
        for id in $(seq "$last"); do
            SLURM_ARRAY_TASK_ID=$id SLURM_ARRAY_TASK_COUNT=$last SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=$last SLURM_ARRAY_TASK_STEP=1 \
                SLURM_CPUS_PER_TASK=1 bash "${@:3}" >&2 || return
        done
        echo 17
        ;;
    --dependency=after*:17) bash -c "${2#--wrap=}" ;;
    esac
}
