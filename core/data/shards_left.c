/* Tells why records of the data are left out, and what is not written of others. */
#include "base/buffer.h"
#include "data/shards.h"

/* The reason as a key of JSON, and in words for one record and for several. */
typedef struct wording {
    const char *name, *one, *many;
} wording;

static const wording reasons[LATHE_N_LEFT] = {
    [LATHE_LEFT_FILE] = {"files", "file is not UTF-8 text", "files are not UTF-8 text"},
    [LATHE_LEFT_EMPTY] = {"empty", "record has no text to learn", "records have no text to learn"},
    [LATHE_LEFT_NO_ANSWER] = {"no_answer", "conversation has no message of the assistant",
                              "conversations have no message of the assistant"},
    [LATHE_LEFT_UNKNOWN_ROLE] =
        {"unknown_role",
         "conversation has no message of the role \"assistant\", but one of "
         "the role",
         "conversations have no message of the role \"assistant\", but ones "
         "of roles such as"},
    [LATHE_LEFT_MASKED] = {"all_masked",
                           "conversation has answers, but the chat template marks nothing to learn",
                           "conversations have answers, but the chat template marks nothing to "
                           "learn"},
    [LATHE_LEFT_CALLS] = {"calls_not_written",
                          "record has an answer that is only calls of tools, and the chat template "
                          "does not write calls",
                          "records have an answer that is only calls of tools, and the chat "
                          "template does not write calls"},
    [LATHE_LEFT_PROMPTS] = {"prompts_differ", "pair has different prompts in chosen and rejected",
                            "pairs have different prompts in chosen and rejected"},
};

static const wording unwritten[LATHE_N_UNWRITTEN] = {
    [LATHE_UNWRITTEN_CALLS] = {"calls",
                               "record is used without its calls of tools, which the chat template "
                               "does not write",
                               "records are used without their calls of tools, which the chat "
                               "template does not write"},
    [LATHE_UNWRITTEN_TOOLS] = {"tools",
                               "record is used without its list of tools, which the chat template "
                               "does not write",
                               "records are used without their lists of tools, which the chat "
                               "template does not write"},
};

const char *lathe_left_name(int32_t reason)
{
    return reasons[reason].name;
}

const char *lathe_unwritten_name(int32_t what)
{
    return unwritten[what].name;
}

/* Appends the number and the words. */
static void put_number(int64_t n, const wording *words, lathe_buffer *out)
{
    lathe_buffer_printf(out, "%lld %s", (long long)n, n == 1 ? words->one : words->many);
}

void lathe_left_put_number(int32_t reason, int64_t n, lathe_buffer *out)
{
    put_number(n, &reasons[reason], out);
}

void lathe_unwritten_put_number(int32_t what, int64_t n, lathe_buffer *out)
{
    put_number(n, &unwritten[what], out);
}

/* Appends the place of the first record. */
static void put_first(const lathe_shards *shards, const lathe_shards_set *set,
                      const lathe_record_count *c, int is_file, lathe_buffer *out)
{
    const lathe_source *source;
    char place[1024];
    int64_t line;
    if (!lathe_shards_line(shards, set, c->first, &source, &line))
        return;
    lathe_buffer_printf(out, ": %s%s",
                        is_file ? source->path
                                : lathe_source_place_text(source, line, place, sizeof place),
                        c->n > 1 ? ", ..." : "");
}

void lathe_shards_put_unwritten(const lathe_shards *shards, const lathe_shards_set *set,
                                int32_t what, lathe_buffer *out)
{
    put_number(set->counts.unwritten[what].n, &unwritten[what], out);
    put_first(shards, set, &set->counts.unwritten[what], 0, out);
}

void lathe_shards_put_left(const lathe_shards *shards, const lathe_shards_set *set, int32_t reason,
                           lathe_buffer *out)
{
    const lathe_record_count *c = &set->counts.left[reason];
    put_number(c->n, &reasons[reason], out);
    if (reason == LATHE_LEFT_UNKNOWN_ROLE) {
        lathe_buffer_puts(out, " ");
        lathe_buffer_json_string(out, set->counts.role);
    }
    put_first(shards, set, c, reason == LATHE_LEFT_FILE, out);
}
