/* Freeze-tuning: the same bits as a list of what does not train, and less memory than all layers.
 */
#include "base/hash.h"
#include "support/checkpoint_case.h"

#define FOLDER "/tmp/lathe-freeze-XXXXXX"

/* Hash of the masters after three steps. out_peak: planned bytes. */
static uint64_t train(const char *dir, const char *const *adapter, int64_t *out_peak)
{
    settings s = {.n = 0};
    lathe_train_result r;
    set_data(&s, dir);
    set_llama(&s, 3, 32, 2, 2, 64);
    set(&s, "data.seq_len=32");
    set(&s, "train.max_steps=3");
    set(&s, "checkpoint.every=0");
    set_all(&s, adapter);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    char said[4096];
    OK(train_said(run, said, sizeof said, &r));
    const uint64_t hash = lathe_hash64(run->store.masters, run->store.master_bytes);
    *out_peak = lathe_machine_total(&run->machine, &run->machine.used);
    lathe_run_close(run);
    OK(lathe_dir_remove(in(dir, "out")));
    return hash;
}

Test(freeze_training, has_the_bits_of_a_list_of_what_does_not_train)
{
    static const char *const last[] = {"adapter.name=freeze", "adapter.layers=1", NULL};
    static const char *const first[] = {"adapter.name=freeze", "adapter.layers=-1",
                                        "adapter.modules=['*.mlp.*']",
                                        "adapter.extra=['model.norm.weight']", NULL};
    static const char *const not_last[] = {
        "adapter.no_train=['model.layers.0.*','model.layers.1.*','model.embed*','model.norm*',"
        "'lm_head*']",
        NULL};
    static const char *const not_first[] = {
        "adapter.no_train=['model.layers.1.*','model.layers.2.*','model.embed*','lm_head*',"
        "'*.self_attn.*','*layernorm*']",
        NULL};
    static const char *const lowest[] = {"adapter.name=freeze", "adapter.layers=-1", NULL};
    static const char *const all[] = {"adapter.name=full", NULL};
    char dir[] = FOLDER;
    int64_t top, low, bottom, peak;
    make_folder(dir, 4000);
    cr_expect_eq(train(dir, last, &top), train(dir, not_last, &peak));
    cr_expect_eq(top, peak);
    cr_expect_eq(train(dir, first, &low), train(dir, not_first, &peak));
    cr_expect_eq(low, peak);
    (void)train(dir, lowest, &bottom);
    (void)train(dir, all, &peak);
    cr_expect_lt(top, bottom); /* the layers below the last keep nothing for the backward */
    cr_expect_lt(bottom, peak);
    OK(lathe_dir_remove(dir));
}
