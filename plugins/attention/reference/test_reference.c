/* The reference attention backend against a dense double reference. */
#define ATTENTION_ISAS NULL
#include "attention_suite.h"

Test(attention_reference, scratch_holds_the_scores)
{
    void *self = attention_instance(attention_host(1), NULL);
    const lathe_attention_v1 *t = attention_plugin()->table;
    attention_case c = {ATTENTION_CASE(1, 300, 300, 1, 1, 16)};
    attention_memory m;
    attention_memory_init(&m, &c);
    m.p.n_threads = 1;
    /* k v q o and the scores, f32, rounded up to 64 bytes */
    const int64_t want = (4 * 300 * 16 + 300 * 300 + 15) / 16 * 64;
    cr_assert(t->forward_scratch(self, &m.p) == want);
    attention_memory_fini(&m);
    attention_plugin()->destroy(self);
}
