/* Over two hundred run files with one fault each (bad_configs.txt): lathe validate and lathe train
 * refuse each of them with the same words, at the same place, with exit code 2, and before they
 * write anything. The cases are divided among four tests that run in parallel.
 *
 * With LATHE_TEST_MUTE, the folder of a liblathe whose errors all say "x" (tests/mute), only the
 * places and the exit code are expected: that of the key, and that of the record of the data. */
#include <jansson.h>

#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

enum { N_PARTS = 4, MAX_LINES = 128, MAX_TEXT = 600, LEAST_CASES = 200 };

/* ---- the good run file ---- */

static const char *const good[] = {
    "[model]",
    "path = \"m\"",
    "[tokenizer]",
    "path = \"bytes\"",
    "[data]",
    "datasets = [{ path = \"text.txt\" }]",
    "seq_len = 16",
    "cache_dir = \"cache\"",
    "[stage]",
    "name = \"pretrain\"",
    "[adapter]",
    "name = \"full\"",
    "[optimizer]",
    "name = \"adamw\"",
    "lr = 1e-3",
    "[scheduler]",
    "name = \"cosine\"",
    "warmup_steps = 2",
    "[train]",
    "precision = \"fp32\"",
    "max_steps = 4",
    "threads = 1",
    "[checkpoint]",
    "dir = \"out\"",
    "[log]",
    "progress = \"off\"",
};

/* A run file as lines. */
typedef struct lines {
    char text[MAX_LINES][MAX_TEXT];
    int n;
} lines;

static int is_header(const char *line)
{
    return line[0] == '[' && line[strlen(line) - 1] == ']';
}

/* Index of the header "[section]"; -1: none. */
static int find_section(const lines *file, const char *section)
{
    for (int i = 0; i < file->n; i++)
        if (strcmp(file->text[i], section) == 0)
            return i;
    return -1;
}

/* Whether the line sets the key at the beginning of `like`, up to its first space. */
static int is_key(const char *line, const char *like)
{
    const size_t n = strcspn(like, " ");
    return strncmp(line, like, n) == 0 && (line[n] == ' ' || line[n] == '\0');
}

/* The line of a key in the section whose header is at `header`; the end of the section if the key
 * is missing. */
static int find_key(const lines *file, int header, const char *like, int *out_found)
{
    int i = header + 1;
    *out_found = 0;
    for (; i < file->n && !is_header(file->text[i]); i++)
        if (is_key(file->text[i], like)) {
            *out_found = 1;
            return i;
        }
    return i;
}

static void insert(lines *file, int at, const char *line)
{
    cr_assert(file->n < MAX_LINES && strlen(line) < MAX_TEXT);
    memmove(file->text[at + 1], file->text[at], (size_t)(file->n - at) * MAX_TEXT);
    strcpy(file->text[at], line);
    file->n++;
}

/* "section.key" -> "[section]" and the key. */
static const char *split_key(const char *name, char *section, size_t bytes)
{
    const char *dot = strchr(name, '.');
    cr_assert_not_null(dot, "%s", name);
    snprintf(section, bytes, "[%.*s]", (int)(dot - name), name);
    return dot + 1;
}

static void take_out(lines *file, const char *name)
{
    char section[64];
    int found;
    const char *key = split_key(name, section, sizeof section);
    const int at = find_key(file, find_section(file, section), key, &found);
    cr_assert(found, "%s", name);
    memmove(file->text[at], file->text[at + 1], (size_t)(file->n - at - 1) * MAX_TEXT);
    file->n--;
}

/* Puts a line of a case into the current section. */
static void put_line(lines *file, char *section, const char *line)
{
    int found;
    if (line[0] == '-') {
        take_out(file, line + 1);
        return;
    }
    if (is_header(line)) {
        strcpy(section, line);
        if (find_section(file, section) < 0)
            insert(file, file->n, line);
        return;
    }
    const int adds = line[0] == '+';
    const int at = find_key(file, find_section(file, section), adds ? "+" : line, &found);
    if (found)
        strcpy(file->text[at], line);
    else
        insert(file, at, line + adds);
}

/* ---- one case ---- */

typedef struct fault {
    char title[128], place[96], cause[96], says[MAX_TEXT], arguments[128];
    lines file;
} fault;

static void write_file(const lines *file)
{
    FILE *out = fopen("run.toml", "w");
    cr_assert_not_null(out);
    for (int i = 0; i < file->n; i++)
        fprintf(out, "%s\n", file->text[i]);
    cr_assert_eq(fclose(out), 0);
}

/* "run.toml:LINE:" for the key or header that the case names. */
static void expected_place(const fault *f, char *out, size_t bytes)
{
    char section[64];
    int found = 1, at;
    if (f->place[0] == '[') {
        at = find_section(&f->file, f->place);
    } else {
        const char *key = split_key(f->place, section, sizeof section);
        at = find_key(&f->file, find_section(&f->file, section), key, &found);
    }
    cr_assert(found && at >= 0, "%s: no %s in the file", f->title, f->place);
    snprintf(out, bytes, "run.toml:%d:", at + 1);
}

/* Whether one line of the output contains the place and the text. */
static int is_said(const char *text, const char *place, const char *says)
{
    for (const char *at = text; (at = strstr(at, says)) != NULL; at++) {
        const char *begin = at;
        while (begin > text && begin[-1] != '\n')
            begin--;
        if (strncmp(begin, place, strlen(place)) == 0)
            return 1;
    }
    return 0;
}

/* Whether a line of the output begins with the place. */
static int is_placed(const char *text, const char *place)
{
    for (const char *at = text; at != NULL && *at != '\0'; at = strchr(at, '\n'), at += at != NULL)
        if (strncmp(at, place, strlen(place)) == 0)
            return 1;
    return 0;
}

static int refuse_by(const char *command, const fault *f)
{
    char line[1024];
    const char *mute = getenv("LATHE_TEST_MUTE");
    const char *file = "run.toml", *arguments = f->arguments;
    if (strcmp(arguments, "NONE") == 0 || strcmp(arguments, "FOLDER") == 0) {
        file = arguments[0] == 'N' ? "none.toml" : "empty";
        arguments = "";
    }
    snprintf(line, sizeof line, "%s%s exec " LATHE " %s %s %s 2>&1 </dev/null",
             mute ? "LD_LIBRARY_PATH=" : "", mute ? mute : "", command, file, arguments);
    return run(line);
}

/* The place of an error's cause as "FILE:LINE:COLUMN", "FILE:LINE" or "FILE record N"; "": it has
 * none. */
static void cause_of(const json_t *error, char *out, size_t bytes)
{
    const json_t *cause = json_object_get(error, "cause");
    const char *file = json_string_value(json_object_get(cause, "file"));
    const long long line = json_integer_value(json_object_get(cause, "line")),
                    column = json_integer_value(json_object_get(cause, "column")),
                    record = json_integer_value(json_object_get(cause, "record"));
    snprintf(out, bytes, "%s", file != NULL ? file : "");
    const size_t n = strlen(out);
    if (record > 0)
        snprintf(out + n, bytes - n, " record %lld", record);
    else if (line > 0 && column > 0)
        snprintf(out + n, bytes - n, ":%lld:%lld", line, column);
    else if (line > 0)
        snprintf(out + n, bytes - n, ":%lld", line);
}

/* Expects the record of the data that the case names as the cause of the error. */
static void check_cause(const fault *f)
{
    char got[512] = "";
    if (f->cause[0] == '\0')
        return;
    (void)refuse_by("validate --json 2>/dev/null", f);
    json_t *root = json_loads(output, 0, NULL);
    cause_of(json_array_get(json_object_get(root, "errors"), 0), got, sizeof got);
    cr_expect_str_eq(got, f->cause, "%s: the cause is at %s, expected %s:\n%s", f->title, got,
                     f->cause, output);
    json_decref(root);
}

static void check(const fault *f)
{
    static char said[sizeof output];
    char place[64] = "";
    write_file(&f->file);
    if (f->place[0])
        expected_place(f, place, sizeof place);
    const int code = refuse_by("validate", f);
    strcpy(said, output);
    cr_expect_eq(code, 2, "%s: validate exits with %d:\n%s", f->title, code, said);
    check_cause(f);
    if (getenv("LATHE_TEST_MUTE")) {
        cr_expect(is_placed(said, place), "%s: expected %s, got:\n%s", f->title, place, said);
        return;
    }
    cr_expect(is_said(said, place, f->says), "%s: expected %s ... %s, got:\n%s", f->title, place,
              f->says, said);
    const int train = refuse_by("train", f);
    cr_expect_eq(train, code, "%s: train exits with %d, validate with %d", f->title, train, code);
    cr_expect_str_eq(output, said, "%s: train says\n%svalidate says\n%s", f->title, output, said);
    cr_expect_neq(access("out", F_OK), 0, "%s: train made its folder", f->title);
}

/* ---- the cases ---- */

static void begin(fault *f, const char *title)
{
    memset(f, 0, sizeof *f);
    snprintf(f->title, sizeof f->title, "%.120s", title);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        insert(&f->file, f->file.n, good[i]);
}

/* Whether the case needs a machine without the device that it names, or the plugin for Parquet. */
static int is_left_out(const fault *f)
{
    if (strstr(f->cause, ".parquet") != NULL)
        return access(LATHE_TEST_BUILD "/lib/lathe/plugins/reader/arrow-shim.so", F_OK) != 0;
    return strcmp(f->title, "a device that is not there") == 0 && access("/dev/nvidia0", F_OK) == 0;
}

/* Runs every case with number `part` modulo N_PARTS; returns the number of all cases. */
static int run_part(int part)
{
    static fault f;
    char line[MAX_TEXT], section[64] = "";
    int n = 0, open = 0;
    FILE *in = fopen(LATHE_TEST_DATA "/cli/bad_configs.txt", "r");
    cr_assert_not_null(in);
    while (fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#')
            continue;
        if (line[0] == '\0') {
            if (open && n++ % N_PARTS == part && !is_left_out(&f))
                check(&f);
            open = 0;
        } else if (strncmp(line, "== ", 3) == 0) {
            begin(&f, line + 3);
            open = 1;
        } else if (strncmp(line, "> ", 2) == 0) {
            snprintf(f.arguments, sizeof f.arguments, "%.120s", line + 2);
        } else if (strncmp(line, "@ ", 2) == 0) {
            snprintf(f.place, sizeof f.place, "%.90s", line + 2);
        } else if (strncmp(line, "% ", 2) == 0) {
            snprintf(f.cause, sizeof f.cause, "%.90s", line + 2);
        } else if (strncmp(line, ": ", 2) == 0) {
            snprintf(f.says, sizeof f.says, "%.590s", line + 2);
        } else {
            put_line(&f.file, section, line);
        }
    }
    cr_assert_eq(open, 0, "the file ends with an empty line");
    cr_assert_eq(fclose(in), 0);
    return n;
}

/* ---- files that the cases need: a model, data ---- */

static const char make_file[] = "[model]\nmodel_type = \"llama\"\nhidden_size = 16\n"
                                "intermediate_size = 32\nnum_hidden_layers = 1\n"
                                "num_attention_heads = 2\nmax_position_embeddings = 64\n"
                                "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                                "cache_dir = \"cache\"\n[train]\nprecision = \"fp32\"\n"
                                "max_steps = 1\nthreads = 1\n[checkpoint]\ndir = \"made\"\n"
                                "[log]\nprogress = \"off\"\n";

#define TALK(from, value)                                                                          \
    "{\"conversations\": [{\"from\": \"" from "\", \"value\": \"" value "\"}, "                    \
    "{\"from\": \"gpt\", \"value\": \"yes\"}]}\n"

/* Data of which one record is wrong. */
static void put_records(void)
{
    put("rows.csv", "text\nsome words\n\377\n");
    put("array.json", "[{\"text\": \"some words\"}, {\"body\": \"others\"}]\n");
    put("bent.json", "[{\"text\": \"some words\"},\n {\"text\": \"others\"},\n {\"text\": }]\n");
    put("talks.jsonl", TALK("human", "hm?") TALK("narrator", "once"));
    put("orders.jsonl", TALK("human", "hm?") TALK("system", "be brief"));
    put("count.jsonl", "{\"prompt\": \"a\", \"chosen\": \"bb\", \"rejected\": \"cc\"}\n"
                       "{\"prompt\": \"a\", \"chosen\": \"bb\", \"rejected\": 3}\n");
    put("mixed.jsonl",
        "{\"prompt\": \"a\", \"chosen\": [{\"role\": \"assistant\", \"content\": \"b\"}], "
        "\"rejected\": [{\"role\": \"assistant\", \"content\": \"c\"}]}\n");
    put("labels.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}\n"
                        "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": \"good\"}\n");
    put("plain.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
    put("strict.jinja",
        "{% for m in messages %}{% if m.role == 'system' %}"
        "{{ raise_exception('no orders') }}{% endif %}{{ m.content }}\n{% endfor %}");
    expect("cp " LATHE_TEST_DATA "/golden/data/readers/same/zstd.parquet rows.parquet", 0, "");
}

static void setup(void)
{
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine.\n", 40);
    put("empty.txt", "");
    put("short.txt", "abc");
    put("binary.txt", "\377\376\001");
    put_times("pairs.jsonl", "{\"prompt\": \"a\", \"chosen\": \"bb\", \"rejected\": \"cc\"}\n", 20);
    put_times("text.jsonl", "{\"text\": \"some words of a text\"}\n", 20);
    put("list.jsonl", "[1]\n");
    put("broken.jsonl", "{\"text\": \n");
    put("number.jsonl", "{\"text\": 5}\n");
    put("table.csv", "a,b\n1,2\n");
    put("half.jsonl", "{\"chosen\": \"x\"}\n");
    put_records();
    put("make.toml", make_file);
    expect(LATHE " train make.toml 2>&1", 0, "");
    expect(
        "mkdir empty tok bad_tok && cp text.jsonl later.jsonl && "
        "echo '{\"text\": 5 5}' >>later.jsonl && echo '{\"model\": 3}' >bad_tok/tokenizer.json && "
        "for m in m m_json m_mamba m_bare m_cut m_shape; do mkdir $m && "
        "cp made/step-00000001/config.json made/step-00000001/model.safetensors $m/ || exit 1; "
        "done; echo '{' >m_json/config.json; sed -i 's/\"llama\"/\"mamba\"/' m_mamba/config.json; "
        "rm m_bare/model.safetensors; truncate -s -100 m_cut/model.safetensors; "
        "sed -i 's/\"intermediate_size\": 32/\"intermediate_size\": 48/' m_shape/config.json",
        0, "");
    expect(LATHE " tokenizer train text.txt --vocab-size 300 -o tok 2>&1", 0, "");
}

TestSuite(bad_configs, .init = setup, .fini = remove_folder);

Test(bad_configs, validate_and_train_say_the_same_of_two_hundred_faults)
{
    const int n = run_part(0);
    cr_expect_geq(n, LEAST_CASES, "%d cases", n);
}

Test(bad_configs, of_the_second_quarter_too)
{
    (void)run_part(1);
}

Test(bad_configs, of_the_third_quarter_too)
{
    (void)run_part(2);
}

Test(bad_configs, of_the_last_quarter_too)
{
    (void)run_part(3);
}

/* The file without a fault is valid, so each refusal is caused by the fault. */
Test(bad_configs, stand_on_a_file_that_is_good)
{
    static fault f;
    begin(&f, "none");
    write_file(&f.file);
    expect(LATHE " validate run.toml 2>&1", 0, "run.toml: valid\n");
    cr_expect_str_eq(output, "run.toml: valid\n");
    expect(LATHE " train run.toml 2>&1", 0, "");
}
