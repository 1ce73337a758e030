/* LoRA+: the bits of LoRA with a group of parameters that has B's learning rate. */
#include "base/hash.h"
#include "support/checkpoint_case.h"

#define FOLDER "/tmp/lathe-lora-plus-XXXXXX"

/* Hash of the masters after three steps. */
static uint64_t train(const char *dir, const char *const *adapter)
{
    settings s = {.n = 0};
    lathe_train_result r;
    char said[4096];
    set_data(&s, dir);
    set_llama(&s, 2, 32, 2, 2, 64);
    set(&s, "data.seq_len=32");
    set(&s, "train.max_steps=3");
    set(&s, "scheduler.name=constant");
    set(&s, "optimizer.lr=0.001");
    set_all(&s, adapter);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(train_said(run, said, sizeof said, &r));
    const uint64_t hash = lathe_hash64(run->store.masters, run->store.master_bytes);
    lathe_run_close(run);
    OK(lathe_dir_remove(in(dir, "out")));
    return hash;
}

Test(lora_plus_training, has_the_bits_of_lora_with_a_group_for_b)
{
    static const char *const plus[] = {"adapter.name=lora_plus", "adapter.lr_ratio=4", NULL};
    static const char *const plain[] = {"adapter.name=lora", NULL};
    static const char *const group[] = {
        "adapter.name=lora", "optimizer.groups=[{params = ['*lora_B*'], lr = 0.004}]", NULL};
    static const char *const group_wins[] = {
        "adapter.name=lora_plus", "adapter.lr_ratio=100",
        "optimizer.groups=[{params = ['*lora_B*'], lr = 0.004}]", NULL};
    char dir[] = FOLDER;
    make_folder(dir, 4000);
    const uint64_t want = train(dir, group);
    cr_expect_eq(train(dir, plus), want);
    cr_expect_eq(train(dir, group_wins), want);
    cr_expect_neq(train(dir, plain), want);
    OK(lathe_dir_remove(dir));
}

Test(lora_plus_training, qlora_has_the_bits_of_lora_over_the_same_quantized_base)
{
    static const char *const named[] = {"adapter.name=qlora", "quant.name=nf4", NULL};
    static const char *const plain[] = {"adapter.name=lora", "quant.name=nf4", NULL};
    static const char *const full[] = {"adapter.name=lora", NULL};
    char dir[] = FOLDER;
    make_folder(dir, 4000);
    const uint64_t want = train(dir, plain);
    cr_expect_eq(train(dir, named), want);
    cr_expect_neq(train(dir, full), want);
    OK(lathe_dir_remove(dir));
}
