// nanoGPT's configuration files and flags.
#include "tests/test.h"
#include "trainer/config/config.h"
#include <ctype.h>
#include <math.h>

static ConfigReader reader;

static void read_text(const char *text) {
    write_file("a.py", text, strlen(text));
    config_open(&reader);
    config_file(&reader, "a.py");
}

static const char *mistakes(void) { return reader.mistakes.size ? (const char *)reader.mistakes.data : ""; }

// These mistakes and no others.
static void close_with(const char *const *wanted, int count) {
    for (int i = 0; i < count; i++) CHECK_TEXT(mistakes(), wanted[i]);
    CHECK_EQUAL(reader.mistake_count, count);
    config_close(&reader);
}

TEST(config_defaults_match_nanogpt) {
    config_open(&reader);
    const Config *c = &reader.config;
    CHECK_EQUAL(c->batch_size.value * c->block_size * c->gradient_accumulation_steps, 491520);
    CHECK(c->n_layer == 12 && c->n_head == 12 && c->n_embd == 768 && !c->bias && c->dropout == 0);
    CHECK(c->learning_rate == 6e-4 && c->min_lr == 6e-5 && c->beta1 == 0.9 && c->beta2 == 0.95);
    CHECK(c->weight_decay == 0.1 && c->grad_clip == 1.0 && c->warmup_iters == 2000 && c->max_iters == 600000);
    CHECK(c->eval_interval == 2000 && c->eval_iters == 200 && c->log_interval == 1 && c->always_save_checkpoint);
    CHECK_EQUAL(config_check(&reader), 0);
    config_close(&reader);
}

// nanoGPT's config/train_gpt2.py and finetune_shakespeare.py, their kinds of lines together.
TEST(config_reads_files_of_nanogpt) {
    read_text("# config for training GPT-2 (124M)\n"
              "# $ torchrun --standalone --nproc_per_node=8 train.py config/train_gpt2.py\n\n"
              "import time\n"
              "from os import path\n"
              "wandb_log = True\n"
              "wandb_project='owt'\n"
              "wandb_run_name = 'ft-' + str(time.time())\n"
              "out_dir = 'out-#1' # a comment, \"quotes\"\n"
              "batch_size = 6\n"
              "  block_size=512\r\n"
              "gradient_accumulation_steps = 5 * 8*2\n"
              "learning_rate = 3e-5\n"
              "weight_decay = .5\n"
              "max_iters = 1_000\n"
              "always_save_checkpoint = False\n"
              "bias = True\n"
              "dataset = \"it's\\tdata\"\n"
              "min_lr = 1e-4 # learning_rate / 10 usually\n"
              "grad_clip = 1 # an integer is a number\n"
              "compile = False # do not torch compile\n"
              "backend = 'nccl'");
    CHECK_EQUAL(reader.mistake_count, 0);
    CHECK_TEXT((char *)reader.ignored.data, "import, from, wandb_log, wandb_project, wandb_run_name, compile, backend");
    const Config *c = &reader.config;
    CHECK(!strcmp(c->out_dir, "out-#1") && !strcmp(c->dataset, "it's\tdata"));
    CHECK(c->batch_size.value == 6 && c->block_size == 512 && c->gradient_accumulation_steps == 80 &&
          c->max_iters == 1000);
    CHECK(c->learning_rate == 3e-5 && c->weight_decay == 0.5 && c->grad_clip == 1.0);
    CHECK(c->bias && !c->always_save_checkpoint);
    CHECK(!strcmp(reader.origin[KEY_batch_size], "a.py:10") && !strcmp(reader.origin[KEY_seed], "default"));
    config_close(&reader);
}

// fault 83
TEST(config_reports_all_mistakes_at_once) {
    read_text("batchsize = 4\n"
              "n_layer = 'six'\n"
              "n_head = 2.5\n"
              "  bias = 1\n"
              "seed = 3 4\n"
              "out_dir = 'out\n"
              "learning_rate = 1e400\n"
              "eval_iters = 10k\n"
              "max_iters = 5\n"
              "what is this\n"
              "max_iters = 6\n"
              "beta2 == 3\n"
              "gradient_checkpoint = True\n"
              "mem_limit = '11.3 parsecs'\n");
    static const char *const wanted[] = {
        "a.py:1:1: unknown key 'batchsize', did you mean 'batch_size'?\n",
        "a.py:2:11: 'n_layer' takes an integer\n",
        "a.py:3:10: 'n_head' takes an integer\n",
        "a.py:4:10: 'bias' takes True or False\n",
        "a.py:5:10: unexpected text after the value of 'seed': '4'\n",
        "a.py:6:11: 'out_dir' takes a quoted string: the string has no closing quote\n",
        "a.py:7:17: 'learning_rate' takes a number\n",
        "a.py:8:14: 'eval_iters' takes an integer\n",
        "a.py:10:1: not a 'key = value' line, as n_layer = 12\n",
        "a.py:11:1: 'max_iters' is set twice, first at a.py:9: remove one (nanoGPT takes the last)\n",
        "a.py:12:1: not a 'key = value' line, as n_layer = 12\n",
        "a.py:13:1: unknown key 'gradient_checkpoint'",
        "a.py:14:13: 'mem_limit' takes a number of bytes, as 1000000 or '10.8GiB'\n",
    };
    close_with(wanted, sizeof wanted / sizeof *wanted);
}

TEST(config_flags_override_files) {
    read_text("batch_size = 4\nbias = False\nmem_limit = 1000\n");
    static const char *const flags[] = {"batch_size=8",      "gradient-accumulation-steps=2*3",
                                        "bias=true",         "out_dir=a b",
                                        "dataset='c'",       "eval_only",
                                        "mem_limit=11.5GiB", "learning_rate=1e-2",
                                        "wandb_log=True"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) config_flag(&reader, flags[i]);
    CHECK_EQUAL(reader.mistake_count, 0);
    const Config *c = &reader.config;
    CHECK(c->batch_size.value == 8 && c->gradient_accumulation_steps == 6 && c->bias && c->eval_only &&
          c->learning_rate == 0.01);
    CHECK(!strcmp(c->out_dir, "a b") && !strcmp(c->dataset, "c") && c->mem_limit == 11776ull << 20);
    CHECK(!strcmp(reader.origin[KEY_batch_size], "--batch_size"));
    config_flag(&reader, "batch_size=9"); // the last one wins
    CHECK_EQUAL(reader.mistake_count, 0);
    CHECK_EQUAL(c->batch_size.value, 9);
    config_flag(&reader, "n_layer=");
    config_flag(&reader, "n_layr=2");
    config_flag(&reader, "beta1");
    config_flag(&reader, "grad_clip=nan");
    CHECK_TEXT(mistakes(), "'n_layer' takes an integer");
    CHECK_TEXT(mistakes(), "unknown key 'n_layr', did you mean 'n_layer'?");
    CHECK_TEXT(mistakes(), "write --beta1=VALUE");
    CHECK_TEXT(mistakes(), "'grad_clip' takes a number");
    CHECK_EQUAL(reader.mistake_count, 4);
    config_close(&reader);
}

// fault 83
TEST(config_checks_ranges_and_combinations) {
    read_text("n_embd = 512\nn_head = 12\ndropout = 1.5\nbatch_size = 0\noptimizer = 'lion'\nbeta2 = 1.0\n"
              "recompute = auto:2\n");
    CHECK_EQUAL(config_check(&reader), -1);
    CHECK_ERROR(EX_USAGE, "6 mistakes");
    CHECK_TEXT(mistakes(), "'recompute' is auto, which chooses the number of layers, too: name a level, as block:2");
    CHECK_TEXT(mistakes(), "a.py:1: 'n_embd' 512 is not divisible by 'n_head' 12: take 480 or 576");
    CHECK_TEXT(mistakes(), "a.py:3: 'dropout' is 1.5");
    CHECK_TEXT(mistakes(), "a.py:4: 'batch_size' is 0, outside 1 to 65536");
    CHECK_TEXT(mistakes(), "a.py:5:13: 'optimizer' is 'lion', not one of adamw, muon");
    config_close(&reader);
}

TEST(every_number_among_the_keys_has_a_range_with_its_default) {
    static const struct {
        char type[8];
        double low, high;
    } rows[KEY_COUNT] = {
#define KEY(type, field, initial, class, range, when, meaning)  {#type, range},
#define WORD(type, field, initial, class, when, meaning, words) {"word", ANY},
#define ANY                                                     0, -1
#define VALUE(name)                                             0, -1
#define RANGE(low, high)                                        low, high
#define AT_LEAST(low)                                           low, 0x1p53
#include "trainer/config/keys.def"
    };
    CHECK_EQUAL(rows[KEY_n_layer].high, LAYERS_MAX); // the tables of recordings and of marks have room for
    for (int key = 0; key < KEY_COUNT; key++) {
        char text[64];
        config_default(key, text, sizeof text);
        const bool number =
            !strcmp(rows[key].type, "INT") || !strcmp(rows[key].type, "FLOAT") || !strcmp(rows[key].type, "AUTO");
        CHECK_EQUAL(rows[key].low <= rows[key].high, number);
        CHECK(!number || (rows[key].low <= strtod(text, NULL) && strtod(text, NULL) <= rows[key].high));
    }
}

TEST(every_condition_of_a_key_is_a_value_of_another_key) {
    static const struct {
        int key;
        const char *value;
    } rows[KEY_COUNT] = {
#define KEY(type, field, initial, class, range, when, meaning)  {when},
#define WORD(type, field, initial, class, when, meaning, words) {when},
#define ALWAYS                                                  0, NULL
#define WHEN(key, value)                                        KEY_##key, #value
#define UNLESS(key, value)                                      KEY_##key, #value
#define WITH(key)                                               KEY_##key, ""
#define PART                                                    WHEN
#define PART_UNLESS                                             UNLESS
#include "trainer/config/keys.def"
    };
    config_open(&reader);
    for (int key = 0; key < KEY_COUNT; key++) {
        char text[64];
        if (!rows[key].value) continue;
        CHECK(config_parse(&reader.config, rows[key].key, rows[key].value));
        config_value(&reader.config, rows[key].key, text, sizeof text);
        CHECK_TEXT(text, rows[key].value);
    }
    config_close(&reader);
}

// The five files of nanoGPT's config/: every assignment of theirs, without most comments.
TEST(config_reads_every_file_of_nanogpt_unchanged) {
    static const char *const files[] = {
        "wandb_log = True\nwandb_project = 'owt'\nwandb_run_name='gpt2-124M'\n\n# 12 batch size * 1024 block size * 5 "
        "gradaccum * 8 GPUs = 491,520\nbatch_size = 12\nblock_size = 1024\ngradient_accumulation_steps = 5 * 8\n"
        "max_iters = 600000\nlr_decay_iters = 600000\neval_interval = 1000\neval_iters = 200\nlog_interval = 10\n"
        "weight_decay = 1e-1\n",
        "out_dir = 'out-shakespeare-char'\neval_interval = 250 # keep frequent because we'll overfit\n"
        "eval_iters = 200\nlog_interval = 10 # don't print too too often\nalways_save_checkpoint = False\n"
        "wandb_log = False # override via command line if you like\nwandb_project = 'shakespeare-char'\n"
        "wandb_run_name = 'mini-gpt'\ndataset = 'shakespeare_char'\ngradient_accumulation_steps = 1\n"
        "batch_size = 64\nblock_size = 256 # context of up to 256 previous characters\nn_layer = 6\nn_head = 6\n"
        "n_embd = 384\ndropout = 0.2\nlearning_rate = 1e-3\nmax_iters = 5000\nlr_decay_iters = 5000\n"
        "min_lr = 1e-4 # learning_rate / 10 usually\nbeta2 = 0.99\nwarmup_iters = 100\n\n# on macbook also add\n"
        "# device = 'cpu'  # run on cpu only\n# compile = False # do not torch compile the model\n",
        "import time\n\nout_dir = 'out-shakespeare'\neval_interval = 5\neval_iters = 40\nwandb_log = False\n"
        "wandb_project = 'shakespeare'\nwandb_run_name = 'ft-' + str(time.time())\n\ndataset = 'shakespeare'\n"
        "init_from = 'gpt2-xl' # this is the largest GPT-2 model\nalways_save_checkpoint = False\nbatch_size = 1\n"
        "gradient_accumulation_steps = 32\nmax_iters = 20\nlearning_rate = 3e-5\ndecay_lr = False\n",
        ("batch_size = 8\neval_iters = 500 # use more iterations\neval_only = True\nwandb_log = False\n"
         "init_from = 'gpt2'\n"),
        "batch_size = 8\neval_iters = 500\neval_only = True\nwandb_log = False\ninit_from = 'gpt2-xl'\n",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        read_text(files[i]);
        CHECK_EQUAL(reader.mistake_count, 0);
        config_close(&reader);
    }
}

TEST(config_computes_values_as_python_does) {
    static const struct {
        const char *text;
        double value;
    } rows[] = {
        {"2 + 3 * 4", 14},
        {"(2 + 3) * 4", 20},
        {"10 - 4 - 3", 3},
        {"-2 ** 2", -4},
        {"2 ** 3 ** 2", 512},
        {"2 ** -1", 0.5},
        {"10 ** -4", 1e-4},
        {"2 ** 0.5", 1.4142135623730951},
        {"1.21 ** -0.5", 1 / 1.1},
        {"7 // 2", 3},
        {"-7 // 2", -4},
        {"-7 % 3", 2},
        {"7 / 2", 3.5},
        {"1_000 * 1e-3", 1},
        {"- - 3", 3},
        {"( ( 3 ) )", 3},
        {"learning_rate / 10", 6e-5},
        {"beta1 + 0.05 * 1", 0.95},
        {"batch_size * 2 ** 3", 96},
        {"max_iters // 100", 6000},
        {"int(6e5)", 600000},
        {"int(-2.5)", -2},
        {"float(3) / int( 2.9 )", 1.5},
        {"3 if True else 4", 3},
        {"3 if bias else 4 if dropout else (5 if 'a' else 6) * 2", 10},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[64];
        snprintf(line, sizeof line, "min_lr = %s # comment\n", rows[i].text);
        read_text(line);
        CHECK_EQUAL(reader.mistake_count, 0);
        CHECK(fabs(reader.config.min_lr - rows[i].value) < 1e-15 * fabs(rows[i].value) + 1e-18);
        config_close(&reader);
    }
}

// Lines of nanoGPT's train.py and of notebooks that its users paste with a configuration.
TEST(config_reads_or_ignores_pasted_lines_of_python) {
    read_text(
        "\"\"\"\nbatch_size = 99\nTo run on a single GPU: $ python train.py --batch_size=32 --compile=False\n\"\"\"\n"
        "'''one line''' # and a comment\n"
        "import os; n_layer = 3 # a second statement is read\n"
        "os.environ[\"CUDA_VISIBLE_DEVICES\"] = \"0;1\"\n"
        "os.environ.setdefault('OMP_NUM_THREADS', '1')\n"
        "%env TOKENIZERS_PARALLELISM=false\n"
        "!pip install tiktoken\n"
        "dtype = 'bfloat16' if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else 'float16' # "
        "'float32'\n"
        "eval_iters = int(2e2);\n"
        "ddp_world_size = 1; n_head = 4; n_embd = 64 * ddp_world_size; wandb_log = False; mlp = gelu:tanh; bias = True\n"
        "batch_size: int = 8\n"
        "learning_rate : float = 1e-3\n"
        "tokens_per_iter = gradient_accumulation_steps * ddp_world_size * batch_size * block_size\n"
        "print(f\"tokens per iteration will be: {tokens_per_iter:,}\")\n"
        "device_type = 'cuda' if 'cuda' in device else 'cpu' # for later use in torch.autocast\n"
        "config_keys = [k for k,v in globals().items() if not k.startswith('_')]\n"
        "exec(open('configurator.py').read()) # overrides from command line or config file\n"
        "config = {k: globals()[k] for k in config_keys} # will be useful for logging\n"
        "iter_num = 0; best_val_loss = 1e9\n"
        "seed = 7 if True else 8");
    CHECK_TEXT(mistakes(), "");
    CHECK_EQUAL(reader.mistake_count, 0);
    CHECK_TEXT((char *)reader.ignored.data,
               "\"\"\", ''', import, os.environ[\"CUDA_VISIBLE_DEVICES\"], "
               "os.environ.setdefault, %env, !pip, dtype, wandb_log, "
               "print, device_type, config_keys, exec, config, best_val_loss, iter_num, tokens_per_iter");
    const Config *c = &reader.config;
    CHECK(c->n_layer == 3 && c->n_head == 4 && c->n_embd == 64 && c->bias && c->gelu == GELU_TANH);
    CHECK(c->batch_size.value == 8 && c->learning_rate == 1e-3 && c->eval_iters == 200 && c->seed == 7);
    CHECK(c->dtype == DTYPE_AUTO);
    config_close(&reader);
}

// fault 83
TEST(config_reports_pasted_lines_that_it_cannot_read) {
    read_text("batch_size = 64 if torch.cuda.is_available() else 8\n"
              "eval_iters = 4 if block_size < 512 else 8\n"
              "n_layer = int('6')\n"
              "seed = 1; seed = 2\n"
              "n_head: int\n"
              "bias = True; what is this\n"
              "max_iters = int(6e5\n"
              "'''\n"
              "n_embd = 1\n");
    static const char *const wanted[] = {
        "a.py:1:20: 'batch_size' takes an integer or 'auto': the condition has no value here: write the value that is",
        "a.py:2:19: 'eval_iters' takes an integer: the condition has no value here: write the value that is meant\n",
        "a.py:3:11: 'n_layer' takes an integer: only numbers can be computed with\n",
        "a.py:4:11: 'seed' is set twice, first at a.py:4",
        "a.py:5:1: not a 'key = value' line, as n_layer = 12\n",
        "a.py:6:14: not a 'key = value' line, as n_layer = 12\n",
        "a.py:7:16: 'max_iters' takes an integer: the parenthesis is not closed\n",
        "a.py:8:1: the docstring has no closing '''\n",
    };
    close_with(wanted, sizeof wanted / sizeof *wanted);
}

TEST(config_names_have_the_values_that_were_set_above) {
    read_text("tokens = 2 ** 19 # no key: a name for later\n"
              "block_size = 512\n"
              "gradient_accumulation_steps = tokens // (block_size * batch_size)\n"
              "max_iters = 5_000 + 1\n"
              "lr_decay_iters = max_iters\n"
              "min_lr = learning_rate / 10\n"
              "half = True\n"
              "bias = half\n"
              "name = 'web'\n"
              "dataset = name\n");
    CHECK_EQUAL(reader.mistake_count, 0);
    const Config *c = &reader.config;
    CHECK_EQUAL(c->gradient_accumulation_steps, 85);
    CHECK_EQUAL(c->lr_decay_iters, 5001);
    CHECK(c->min_lr == 6e-4 / 10 && c->bias && !strcmp(c->dataset, "web"));
    config_flag(&reader, "warmup_iters=max_iters // 100");
    CHECK_EQUAL(c->warmup_iters, 50);
    config_close(&reader);
}

// fault 83
TEST(config_reports_expressions_that_have_no_value) {
    read_text("max_iters = later + 1\n"
              "warmup_iters = 1 // 0\n"
              "eval_iters = 4 / 2\n"
              "beta1 = (0.9\n"
              "beta2 = 'a' * 2\n"
              "batch_size = 2 *\n"
              "learnin_rate = 1e-3\n"
              "seed = 0x10\n"
              "n_layer = 1111111111111111111111111111111111111111111111111111111111111111111\n");
    static const char *const wanted[] = {
        "a.py:1:13: 'max_iters' takes an integer: the name 'later' is not set above\n",
        "a.py:2:18: 'warmup_iters' takes an integer: division by zero\n",
        "a.py:3:14: 'eval_iters' takes an integer\n",
        "a.py:4:9: 'beta1' takes a number: the parenthesis is not closed\n",
        "a.py:5:13: 'beta2' takes a number: only numbers can be computed with\n",
        "a.py:6:14: 'batch_size' takes an integer or 'auto'\n",
        "a.py:7:1: unknown key 'learnin_rate', did you mean 'learning_rate'?\n",
        "a.py:8:8: 'seed' takes an integer\n",
        "a.py:9:11: 'n_layer' takes an integer: the number has more than 63 digits\n",
    };
    close_with(wanted, sizeof wanted / sizeof *wanted);
}

// Whether each key=VALUE of a sentence has one of our keys; not meant: --option=VALUE.
static bool names_our_keys(const char *sentence) {
    for (const char *end = sentence; (end = strchr(end, '=')); end++) {
        const char *at = end;
        while (at > sentence && (isalnum((unsigned char)at[-1]) || at[-1] == '_')) at--;
        const Option *option = option_find(config_keys, at, (size_t)(end - at));
        if (!(at > sentence && at[-1] == '-') && !(option && strlen(option->name) == (size_t)(end - at))) return false;
    }
    return true;
}

// A row of peer_keys.def: the mistake has its answer, and what that names can be set.
static void check_peer_key(const char *name, int key, const char *value, const char *sentence) {
    char flag[128], wanted[512];
    const char *placeholder = strchr(value, ':'); // wsd:STEPS
    if (sentence)
        snprintf(wanted, sizeof wanted, "unknown key '%s': %s\n", name, sentence);
    else
        snprintf(wanted, sizeof wanted, "unknown key '%s', did you mean '%s%s%s'?\n", name, config_key(key),
                 *value ? "=" : "", value);
    config_open(&reader);
    snprintf(flag, sizeof flag, "%s=1", name);
    config_flag(&reader, flag);
    close_with((const char *[]){wanted}, 1);
    if (sentence) {
        CHECK(names_our_keys(sentence));
        return;
    }
    CHECK(!config_is_part(key));
    config_open(&reader);
    snprintf(flag, sizeof flag, "%s=%.*s%s", config_key(key),
             (int)(placeholder ? placeholder - value : (long)strlen(value)), value, placeholder ? ":5" : "");
    if (*value) config_flag(&reader, flag);
    CHECK_EQUAL(reader.mistake_count, 0);
    config_close(&reader);
}

TEST(each_key_of_another_program_is_answered_with_a_key_that_exists) {
#define SAME(name, key)       check_peer_key(name, KEY_##key, "", NULL);
#define SET(name, key, value) check_peer_key(name, KEY_##key, value, NULL);
#define NONE(name, sentence)  check_peer_key(name, 0, "", sentence);
#include "trainer/config/peer_keys.def"
}

TEST(config_skips_a_byte_order_mark_and_reports_nul_bytes) {
    static const char text[] = "\xef\xbb\xbfn_layer = 3\nbeta1 = 0.5\0\nn_head = 2\n";
    write_file("a.py", text, sizeof text - 1);
    config_open(&reader);
    config_file(&reader, "a.py");
    CHECK_TEXT(mistakes(), "a.py:2:12: the line has a NUL byte: not a text file\n");
    CHECK_EQUAL(reader.mistake_count, 1);
    CHECK(reader.config.n_layer == 3 && reader.config.n_head == 2);
    config_close(&reader);
}

TEST(config_finds_a_key_set_twice_in_a_file_with_a_long_path) {
    char path[200];
    memset(path, 'd', 180), path[180] = 0;
    write_file(path, "n_layer = 3\nn_layer = 4\n", 24);
    config_open(&reader);
    config_file(&reader, path);
    CHECK_TEXT(mistakes(), "'n_layer' is set twice");
    CHECK_EQUAL(reader.mistake_count, 1);
    config_close(&reader);
}

TEST(config_accepts_the_keys_of_other_nanogpt_forks) {
    read_text("grad_checkpoint = True\neval_block_size = 256\ndevice = 'cuda:3'\n");
    CHECK_EQUAL(config_check(&reader), 0);
    const Config *c = &reader.config;
    CHECK(c->recompute == RECOMPUTE_BLOCK && c->eval_block_size == 256 && c->device == DEVICE_CUDA + 3);
    config_close(&reader);
    read_text("grad_checkpoint = True\nrecompute = 'gelu'\nblock_size = 128\neval_block_size = 256\n");
    CHECK_EQUAL(config_check(&reader), -1);
    CHECK_TEXT(mistakes(), "a.py:1: 'grad_checkpoint' is True, and 'recompute' is gelu (a.py:2): set one of them");
    CHECK_TEXT(mistakes(), "a.py:4: 'eval_block_size' 256 is larger than 'block_size' 128");
    config_close(&reader);
    err_clear();
}

TEST(config_words_become_enums) {
    read_text(
        "sampling = 'crop'\nrecompute = block\nlr_schedule = 'cubic'\nmlp = gelu:tanh # unquoted\noffload = 'optimizer\n");
    const Config *c = &reader.config;
    CHECK(c->sampling == SAMPLING_CROP && c->recompute == RECOMPUTE_BLOCK && c->gelu == GELU_TANH);
    CHECK_TEXT(mistakes(), "a.py:3:15: 'lr_schedule' is 'cubic', not one of cosine, linear, constant, wsd\n");
    CHECK_TEXT(mistakes(), "a.py:5:11: 'offload' takes a quoted string: the string has no closing quote\n");
    config_flag(&reader, "recompute=gelu");
    config_flag(&reader, "sampling='sequential'");
    config_flag(&reader, "offload=");
    CHECK(c->sampling == SAMPLING_SEQUENTIAL && c->recompute == RECOMPUTE_GELU);
    CHECK_TEXT(mistakes(), "'offload' is '', not one of none, optimizer, all, auto");
    config_flag(&reader, "offload=optimizer+residuals");
    CHECK_TEXT(mistakes(), "'offload=optimizer+residuals' is now 'offload=all'");
    CHECK_EQUAL(reader.mistake_count, 4);
    config_close(&reader);
}

TEST(config_aliases_of_words_are_read_but_not_written) {
    char text[16];
    config_open(&reader);
    CHECK(config_parse(&reader.config, KEY_device, "cuda:0"));
    config_value(&reader.config, KEY_device, text, sizeof text);
    CHECK_TEXT(text, "cuda");
    CHECK(!config_parse(&reader.config, KEY_device, "cuda:8"));
    config_close(&reader);
}

TEST(config_words_have_a_part_behind_a_colon) {
    static const char *const bad[] = {"mlp=relu2:tanh",         "mlp=gelu:",         "recompute=none:2",
                                      "spike_action=skip:four", "lr_schedule=wsd:x", "dtype=bfloat16:highest"};
    char text[32];
    read_text("recompute = 'mlp:4'\nspike_action = skip:2.5\nlr_schedule = 'wsd:300' # steps\nposition = 'rope:5e5'\n");
    config_flag(&reader, "mlp=gelu:tanh");
    config_flag(&reader, "dtype=float32:highest");
    CHECK_EQUAL(config_check(&reader), 0);
    const Config *c = &reader.config;
    CHECK(c->recompute == RECOMPUTE_MLP && c->recompute_layers == 4 && c->spike_action == SPIKE_SKIP);
    CHECK(c->spike_z == 2.5 && c->lr_schedule == LR_WSD && c->cooldown_iters == 300);
    CHECK(c->position == POSITION_ROPE && c->rope_theta == 5e5 && c->gelu == GELU_TANH);
    CHECK(c->dtype == DTYPE_FP32 && c->matmul_precision == PRECISION_HIGHEST);
    config_text(c, KEY_recompute, text, sizeof text);
    CHECK_TEXT(text, "mlp:4");
    config_flag(&reader, "recompute=mlp"); // the part of another word or place does not stay
    config_flag(&reader, "position=learned");
    CHECK(!c->recompute_layers && c->rope_theta == 10000);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        config_flag(&reader, bad[i]);
        CHECK_EQUAL(reader.mistake_count, i + 1);
    }
    config_close(&reader);
}

TEST(config_translates_the_keys_of_nanogpt) {
    read_text("decay_lr = False\nwarmup_iters = 100\neval_iters = 7\nbatch_size = 3\nblock_size = 32\n");
    CHECK_EQUAL(config_check(&reader), 0);
    const Config *c = &reader.config;
    CHECK(c->lr_schedule == LR_CONSTANT && !c->warmup_iters && c->eval_tokens == 7 * 3 * 32);
    reader.config.block_size = 16; // of a model
    CHECK_EQUAL(config_check(&reader), 0);
    CHECK_EQUAL(c->eval_tokens, 7 * 3 * 16);
    config_close(&reader);
    read_text("eval_iters = 200\n"); // the default, in batches of the run's size
    CHECK_EQUAL(config_check(&reader), 0);
    CHECK(!c->eval_tokens && config_eval_tokens(c) == 200 * 12 * 1024);
    config_close(&reader);
}
