// The trainer beside a real loader: data of another vocabulary.
#include "tests/unit/loader/fixture_loader.h"
#include <signal.h>
#include <sys/wait.h>

static int train(const char *more) {
    char command[8192];
    snprintf(command, sizeof command,
             "%s/trainer train --loader=ipc://p --out_dir=run --n_layer=1 --n_head=1 --n_embd=16 --block_size=16 "
             "--batch_size=1 --gradient_accumulation_steps=1 --eval_iters=1 --sample_tokens=0 --threads=1 --quiet %s "
             ">words 2>&1",
             test_bin, more);
    return WEXITSTATUS(system(command));
}

// fault 77
TEST(trainer_refuses_a_vocabulary_that_differs_from_the_checkpoint) {
    TestDataset set = {1, 30000, 2000, 30000, 4096, false, false};
    make_test_dataset("ours", &set);
    set.other_vocabulary = true;
    make_test_dataset("theirs", &set);
    pid_t loader = start_loader("ours", "p");
    CHECK_EQUAL(train("--max_iters=2"), 0);
    CHECK_EQUAL(stop_loader(loader, SIGTERM), 0);
    loader = start_loader("theirs", "p");
    wait_for_loader("p", 2);
    CHECK_EQUAL(train("--max_iters=4"), 76);
    char *words = read_file("words", NULL);
    CHECK_TEXT(words, "4a155e7ccd300e17"); // both are named
    CHECK_TEXT(words, "2222222222222222");
    free(words);
    CHECK_EQUAL(stop_loader(loader, SIGTERM), 0);
}
