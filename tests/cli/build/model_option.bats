# An option of the model is a key in keys.def and a row in options.def: config.json, its reader and the refusal of exports follow.
# Needs a C compiler.
# bats file_tags=ci

load ../helpers

setup() {
    ! is_sanitized || skip "the libraries of this build need its sanitizers"
    cp -r "$ROOT"/{common,dataset,kernels,loader,remote,shardtool,tokenizer,trainer} "$BATS_TEST_TMPDIR"
    cd "$BATS_TEST_TMPDIR"
}
# add_key CLASS: the key gravity. build_main FILE...: ./option of main.c and of the files that see the new key
add_key() {
    sed -i "/^KEY(FLOAT, dropout/i KEY(INT, gravity, 0, $1, RANGE(0, 99), ALWAYS, \"weight of the past\")" trainer/config/keys.def
}
build_main() {
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -I. -fopenmp -ffunction-sections -fdata-sections -Wl,--gc-sections -o option main.c \
        trainer/config/*.c "$@" "$BIN/../core.a" -Wl,--as-needed ${LIBS:--lzmq -lzstd -ljansson -lxxhash -lcrypto -lm -lpthread}
}

@test "a row of options.def adds a member of the shape, its config.json both ways and the refusal of exports" {
    add_key OPTION
    sed -i '/^#undef OPTION/i OPTION(int, gravity, gravity, (int)config->gravity, 0, shape->gravity ? "gravity is not 0" : NULL)' trainer/shape/options.def
    cat >main.c <<'END'
#include "common/err.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/export/export_llama.h"
#include <stdio.h>
int main(void) {
    static ConfigReader reader;
    Buffer text = {0};
    config_open(&reader);
    for (int gravity = 0; gravity < 8; gravity += 7) {
        reader.config.gravity = gravity;
        const ModelShape shape = model_shape(&reader.config);
        text.size = 0;
        model_config_print(&shape, DTYPE_FP32, &text);
        file_write("config.json", (Bytes){text.data, text.size});
        reader.config.gravity = 5;
        const int result = model_config_apply(&reader, ".", true);
        printf("%d %d %s", result, (int)reader.config.gravity, model_is_gpt2(&shape) ? "gpt2\n" : (const char *)text.data);
    }
    reader.config.norm = NORM_RMS, reader.config.position = POSITION_ROPE;
    const ModelShape shape = model_shape(&reader.config);
    llama_check(&shape);
    printf("%s\n", err_text());
    config_flag(&reader, "gravity=100");
    return config_check(&reader) == 0;
}
END
    build_main kernels/backend.c kernels/dtype.c trainer/shape/params.c trainer/checkpoint/model_config.c trainer/export/export_llama.c
    run ./option
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"0 0 gpt2"* && "$output" == *"0 7 {"*'"model_type": "millrace"'*'"logit_softcap": 0,
 "gravity": 7
}'* ]]
    [[ "$output" == *"and here gravity is not 0"* && "$output" == *"'gravity' is 100, outside 0 to 99"* ]]
}

@test "a key with the role PLAN ends a replay where the run changed it, and another key of the run does not" {
    cat >main.c <<'END'
#include "trainer/audit/replay.c"
int main(void) {
    static Replay replay;
    static ConfigReader reader;
    RecordLine line;
    config_open(&reader);
    replay.engine.config = reader.config;
    reader.config.gravity = 3;
    const char *text = json_dumps(json_pack("{sisiso}", "step", 4, "arena_bytes", 1, "config", run_state_config(&reader.config)), 0);
    const int result = record_parse(&line, (Bytes){(const uint8_t *)text, strlen(text)}) < 0 ? -2 : change_config(&replay.engine.config, &replay.record, &line);
    printf("%d %d %s\n", result, (int)replay.engine.config.gravity, result ? err_text() : "");
}
END
    add_key "RUN PLAN"
    build_main trainer/checkpoint/run_state.c
    run ./option
    [ "$output" = "-1 0 after step 4 the run has gravity=3, before it 0" ]
    sed -i '/gravity/s/RUN PLAN/RUN/' trainer/config/keys.def
    build_main trainer/checkpoint/run_state.c
    run ./option
    [ "$output" = "0 3 " ]
}
