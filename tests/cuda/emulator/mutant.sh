#!/usr/bin/env bash
# A planted bug must be caught: mutant.sh BUILD NAME takes one line out of a kernel, builds the emulated backend with it
# and passes when the named test fails with the words expected. mutant.sh --list names them.
set -u
mutants() { # name | file | what sed does to it | the test | what it must say | the card, where it is not the usual one
    cat <<'END'
barrier|attention_backward.cu|/__syncthreads(); \/\/ dS of all warps/d|attention_of_64|error
wait|attention_forward.cu|s/^        cp_async_wait<0>();//|attention_of_more|finite
ticket|attention_backward.cu|s/= atomicAdd(turns, 1)/= (int)blockIdx.x/|attention_of_more|waits for a block that has not run
race|cross_entropy.cu|0,/__syncthreads/s/__syncthreads();//|loss|error
overrun|embed.cu|s/if (i >= vectors) return;//|embedding_agrees|heap-buffer-overflow
shared|cross_entropy.cu|s/SHARED(double, sums, 256)/SHARED(double, sums, 255)/|loss|heap-buffer-overflow
divergent|column_sums.cu|s/^    __syncthreads();/    if (threadIdx.x < 16) __syncthreads();/|attention_of_more|deadlock
misaligned|layernorm_forward.cu|s/load8(b, branch + first + c)/load8(b, branch + first + c + 1)/|layernorm_agrees|misaligned
copy|attention_forward.cu|s/^        __syncthreads();//|attention_of_64|error|sm_75
half|attention_backward.cu|/^        __syncthreads(); \/\/ the tile has landed/d|attention_of_more|error|sm_75
arrival|upload.c|/cudaStreamWaitEvent(cuda.stream, stage->arrived/d|uploads|error
slot|upload.c|/cudaEventSynchronize(stage->arrived)/d|uploads|error
stage|upload.c|/cudaStreamWaitEvent(copy_stream, stage->taken/d|uploads|error
room|copy_streams.c|s/order(cuda.stream, slots\[slot\].vacated, in);//|slots|error
arrived|copy_streams.c|/cudaStreamWaitEvent(cuda.stream, slots\[slot\].arrived/d|slots|error
made|copy_streams.c|s/order(cuda.stream, slots\[slot\].written, out);//|slots|error
left|copy_streams.c|/cudaStreamWaitEvent(in, slots\[slot\].left/d|slots|error
stored|copy_streams.c|s/cuda_check(cudaStreamWaitEvent(cuda.stream, slots\[i\].left, 0), "waiting for copies to host memory")/(void)i/|slots|wrong use
END
}
[ "${1:-}" = --list ] && mutants | cut -d'|' -f1 && exit
build=$1 name=$2
IFS='|' read -r _ file edit word words card < <(mutants | grep "^$name|")
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
sed "$edit" "kernels/cuda/$file" >"$folder/$file"
cmp -s "kernels/cuda/$file" "$folder/$file" && echo "the edit of '$name' changes nothing" && exit 1
sanitize="-fsanitize=address,undefined -fno-sanitize-recover=all"
object=$file.o other='*.sm_75.o'
case $file in
*.cu) compile="g++ -std=c++17 -Wno-unknown-pragmas -DEMU -x c++ -include tests/cuda/emulator/emu.h" ;;
*) compile="gcc -std=c11 -D_GNU_SOURCE" ;;
esac
[ "$card" = sm_75 ] && export EMU_CAPABILITY=75 && compile="$compile -DACT_FP16 -DARCH=750" &&
    object=$file.sm_75.o other='attention_*.fp16.o'
objects=$(find "$build/emu" -name '*.o' ! -name "$object" ! -name "$other")
# shellcheck disable=SC2086
$compile -O1 -g $sanitize -I. -isystem "$CUDA_HOME/include" -c "$folder/$file" -o "$folder/mutant.o" || exit 1
# shellcheck disable=SC2086
g++ $sanitize -fopenmp "$folder/mutant.o" $objects "$build/core.a" $EMULIBS -o "$folder/test" || exit 1
EMU_MULTIPROCESSORS=0 timeout 100 "$folder/test" --data tests/data --bin "$build/bin" "$word" >"$folder/log" 2>&1 &&
    echo "planted bug '$name' was not caught" && exit 1
grep -qi -- "$words" "$folder/log" || { tail -15 "$folder/log" && exit 1; }
