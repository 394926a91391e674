# An option of the model is a key in keys.def and a row in options.def: config.json, its reader and the refusal of exports follow.
# Needs a C compiler.
# bats file_tags=ci

load ../helpers

@test "a row of options.def adds a member of the shape, its config.json both ways and the refusal of exports" {
    ! grep -q __asan_init "$BIN/shardtool" || skip "the libraries of this build need its sanitizers"
    cd "$ROOT"
    tree=$BATS_TEST_TMPDIR
    cp -r common dataset kernels loader shardtool tokenizer trainer "$tree"
    cd "$tree"
    sed -i '/^KEY(FLOAT, dropout/i KEY(INT, gravity, 0, OPTION, RANGE(0, 99), ALWAYS, "weight of the past")' trainer/config/keys.def
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
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -I. -fopenmp -ffunction-sections -fdata-sections -Wl,--gc-sections \
        -o option main.c kernels/backend.c kernels/dtype.c trainer/config/*.c trainer/shape/params.c trainer/checkpoint/model_config.c \
        trainer/export/export_llama.c "$BIN/../core.a" -lzstd -ljansson -lxxhash -lcrypto -lm -lpthread
    run ./option
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"0 0 gpt2"* && "$output" == *"0 7 {"*'"model_type": "millrace"'*'"logit_softcap": 0,
 "gravity": 7
}'* ]]
    [[ "$output" == *"and here gravity is not 0"* && "$output" == *"'gravity' is 100, outside 0 to 99"* ]]
}
