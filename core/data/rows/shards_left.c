/* Tells why records of the data are left out, and what is not written of others. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "data/records/record_keys.h"
#include "data/rows/shards.h"

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
    [LATHE_LEFT_MUTED] = {"muted",
                          "conversation has answers, but its messages are marked not to be learnt "
                          "(weight, train, loss)",
                          "conversations have answers, but their messages are marked not to be "
                          "learnt (weight, train, loss)"},
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
    [LATHE_UNWRITTEN_DOCUMENTS] = {"documents",
                                   "record is used without its documents, which the chat template "
                                   "does not write",
                                   "records are used without their documents, which the chat "
                                   "template does not write"},
};

#define PLAIN_TEXTS                                                                                \
    "; chat = true in the dataset lets the template write them as messages, chat = false keeps "   \
    "the texts and ends this note"

static const wording told[LATHE_N_TOLD] = {
    [LATHE_TOLD_PAST_TEMPLATE] =
        {"past_template",
         "record is plain text, which the chat template does not write" PLAIN_TEXTS,
         "records are plain text, which the chat template does not write" PLAIN_TEXTS},
    [LATHE_TOLD_SEAM] = {"seam",
                         "record has no white space between prompt and completion, which are one "
                         "text; give one of them a space or a line end (format)",
                         "records have no white space between prompt and completion, which are one "
                         "text; give one of them a space or a line end (format)"},
    [LATHE_TOLD_NO_PROMPT] =
        {"no_prompt",
         "pair has no prompt, and its texts have no common beginning or part inside a word, so it "
         "compares answers without their question; name the prompt in columns or format",
         "pairs have no prompt, and their texts have no common beginning or part inside a word, so "
         "they compare answers without their question; name the prompt in columns or format"},
    [LATHE_TOLD_BEGUN] =
        {"begun",
         "record has a prompt that ends with a message of the assistant; the completion is another "
         "message after it",
         "records have prompts that end with a message of the assistant; the completion is another "
         "message after it"},
    [LATHE_TOLD_CONTINUED] = {"continued",
                              "prompt ends with a begun answer, which the model continues",
                              "prompts end with a begun answer, which the model continues"},
    [LATHE_TOLD_RECUT] = {"recut",
                          "record has a prompt whose end merges with the completion; this token "
                          "counts as completion",
                          "records have prompts whose end merges with the completion; those tokens "
                          "count as completion"},
    [LATHE_TOLD_SPACES] = {"spaces", "of these prompts ends with a space",
                           "of these prompts end with a space"},
    [LATHE_TOLD_DATE] =
        {"date",
         "record has the date, which the chat template writes (strftime_now): that of the day on "
         "which the data were prepared; data of another day have other tokens",
         "records have the date, which the chat template writes (strftime_now): that of the day on "
         "which the data were prepared; data of another day have other tokens"},
    [LATHE_TOLD_JSON] = {"json_texts",
                         "record has a text that is the JSON of a list of messages, and is read as "
                         "a text; write it as a list",
                         "records have a text that is the JSON of a list of messages, and is read "
                         "as a text; write it as a list"},
    [LATHE_TOLD_MARKS] =
        {"marks",
         "record has messages that are not to be learnt (weight, train, loss), which has no effect "
         "here: stage sft heeds it in conversations",
         "records have messages that are not to be learnt (weight, train, loss), which has no "
         "effect here: stage sft heeds it in conversations"},
    [LATHE_TOLD_OTHERS] =
        {"marked_roles",
         "conversation has a message of another role than the assistant's that is to be learnt "
         "(weight, train, loss); only answers are",
         "conversations have messages of other roles than the assistant's that are to be learnt "
         "(weight, train, loss); only answers are"},
};

int lathe_told_at_prepare(int32_t what)
{
    return what == LATHE_TOLD_RECUT || what == LATHE_TOLD_SPACES || what == LATHE_TOLD_DATE;
}

const char *lathe_told_name(int32_t what)
{
    return told[what].name;
}

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

void lathe_shards_put_told(const lathe_shards *shards, const lathe_shards_set *set, int32_t what,
                           lathe_buffer *out)
{
    const lathe_record_notes *c = &set->notes;
    put_number(c->told[what].n, &told[what], out);
    put_first(shards, set, &c->told[what], 0, out);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int lathe_shards_put_unread(const lathe_shards_set *set, lathe_buffer *out)
{
    const lathe_record_notes *c = &set->notes;
    const char *names[LATHE_UNREAD_COLUMNS];
    int means = 0, n = 0, n_columns = c->unread_others.n > 0;
    for (; n < LATHE_UNREAD_COLUMNS && c->unread[n].name[0]; n++) {
        names[n] = c->unread[n].name;
        means |= lathe_record_key_means(names[n]);
        n_columns +=
            strncmp(names[n], LATHE_RECORD_OF_MESSAGES, sizeof LATHE_RECORD_OF_MESSAGES - 1) != 0;
    }
    qsort(names, (size_t)n, sizeof *names, by_name);
    lathe_buffer_printf(out, "nothing reads the %s%s ", n_columns > 0 ? "column" : "key",
                        n == 1 ? "" : "s");
    for (int i = 0; i < n; i++) {
        const char *near = lathe_record_key_near(names[i]);
        lathe_buffer_printf(out, "%s%s", i ? ", " : "", names[i]);
        if (near != NULL)
            lathe_buffer_printf(out, " (%s?)", near);
    }
    lathe_buffer_puts(out, c->unread_others.n > 0 ? ", ..." : "");
    if (n_columns > 0)
        lathe_buffer_puts(out, "; columns and format of the dataset name what is read");
    if (n_columns < n)
        lathe_buffer_puts(out, "; of a message, the chat template reads other keys");
    return means;
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
