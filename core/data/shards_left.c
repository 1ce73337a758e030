/* Tells why records of the data are left out. */
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
};

const char *lathe_left_name(int32_t reason)
{
    return reasons[reason].name;
}

void lathe_shards_put_left(const lathe_shards *shards, const lathe_shards_set *set, int32_t reason,
                           lathe_buffer *out)
{
    const lathe_record_count *c = &set->counts.left[reason];
    const lathe_source *source;
    char place[1024];
    int64_t line;
    lathe_buffer_printf(out, "%lld %s", (long long)c->n,
                        c->n == 1 ? reasons[reason].one : reasons[reason].many);
    if (reason == LATHE_LEFT_UNKNOWN_ROLE) {
        lathe_buffer_puts(out, " ");
        lathe_buffer_json_string(out, set->counts.role);
    }
    if (!lathe_shards_line(shards, set, c->first, &source, &line))
        return;
    lathe_buffer_printf(out, ": %s",
                        reason == LATHE_LEFT_FILE
                            ? source->path
                            : lathe_source_place_text(source, line, place, sizeof place));
    lathe_buffer_puts(out, c->n > 1 ? ", ..." : "");
}
