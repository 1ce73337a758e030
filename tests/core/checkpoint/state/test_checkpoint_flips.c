/* Flipped bits all over a checkpoint: the check finds each and names its file. */
#include "run/api/save_load.h"
#include "support/checkpoint_case.h"

enum { FLIPS = 10000 };

static char dir[64];

/* In memory if possible: each flip is written to the file. */
static void make_dir(void)
{
    strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/lathe-flips-XXXXXX"
                                              : "/tmp/lathe-flips-XXXXXX");
    make_folder(dir, 4000);
}

static void drop_dir(void)
{
    OK(lathe_dir_remove(dir));
}

TestSuite(checkpoint_flips, .init = make_dir, .fini = drop_dir);

static void write_byte(FILE *f, int64_t at, int value)
{
    cr_assert(fseek(f, (long)at, SEEK_SET) == 0 && fputc(value, f) != EOF && fflush(f) == 0);
}

/* Flips one bit and restores it. */
static void flip_one(const char *path, FILE *f, int64_t at, int bit)
{
    cr_assert_eq(fseek(f, (long)at, SEEK_SET), 0);
    const int was = fgetc(f);
    cr_assert_neq(was, EOF);
    write_byte(f, at, was ^ (1 << bit));
    const lathe_status status = lathe_manifest_verify(in(dir, "out/step-00000002"));
    cr_assert_eq(status, LATHE_E_CORRUPT, "%s: bit %d of byte %lld: status %d", path, bit,
                 (long long)at, status);
    cr_assert(strstr(lathe_error_message(), path), "%s is not named: %s", path,
              lathe_error_message());
    write_byte(f, at, was);
}

/* Flips bits all over the file: always in its first and last bytes, in others by a fixed
 * sequence. */
static int64_t flip_file(const char *path, int64_t n_flips, uint64_t *state)
{
    FILE *f = fopen(path, "r+");
    cr_assert(f && fseek(f, 0, SEEK_END) == 0, "%s", path);
    const int64_t bytes = ftell(f);
    cr_assert_gt(bytes, 0, "%s is empty", path);
    for (int64_t i = 0; i < n_flips; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        const int64_t at = i < 16                ? i % bytes
                           : i < 32 && bytes > i ? bytes - 1 - (i - 16)
                                                 : (int64_t)((*state >> 20) % (uint64_t)bytes);
        flip_one(path, f, at, (int)(*state >> 60) & 7);
    }
    fclose(f);
    return n_flips;
}

Test(checkpoint_flips, ten_thousand_over_every_file_are_all_seen)
{
    settings s = {.n = 0};
    lathe_arena arena = LATHE_ARENA_INIT;
    char **paths = NULL;
    int64_t n = 0, done = 0;
    uint64_t state = 7;
    configure(&s, dir);
    set(&s, "train.max_steps=2");
    OK(train_once(&s, NULL, NULL));
    OK(lathe_dir_walk(in(dir, "out/step-00000002"), &arena, &paths, &n));
    cr_assert_geq(n, 5); /* config, model, optimizer, run.json, manifest */
    for (int64_t i = 0; i < n; i++)
        done += flip_file(paths[i], (FLIPS + n - 1) / n, &state);
    printf("%lld flips over %lld files\n", (long long)done, (long long)n);
    cr_assert_geq(done, FLIPS);
    OK(lathe_manifest_verify(in(dir, "out/step-00000002")));
    lathe_arena_fini(&arena);
}

/* A run uses another checkpoint instead of the damaged one. Also flips bits of a pointer file. */
Test(checkpoint_flips, a_flipped_pointer_leads_to_no_flipped_checkpoint)
{
    settings s = {.n = 0};
    configure(&s, dir);
    set(&s, "checkpoint.every=1");
    set(&s, "train.stop_after=3");
    OK(train_once(&s, NULL, NULL));
    set(&s, "train.stop_after=4");
    for (int bit = 0; bit < 8 * 13; bit++) { /* "step-00000003" */
        OK(lathe_checkpoint_point(in(dir, "out"), "latest", "step-00000003"));
        FILE *f = fopen(in(dir, "out/latest"), "r+");
        cr_assert(f && fseek(f, bit / 8, SEEK_SET) == 0);
        const int was = fgetc(f);
        write_byte(f, bit / 8, was ^ (1 << bit % 8));
        fclose(f);
        lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
        const char *path = NULL;
        logged[0] = '\0';
        lathe_log_set_sink(keep_log, NULL);
        const lathe_status status = lathe__run_resume(run, &path);
        /* the newest complete one, or, if the flipped bit makes another checkpoint's name, that
         * one */
        cr_assert(status == LATHE_OK && path && run->at.step >= 1 && run->at.step <= 3,
                  "bit %d: %s", bit, lathe_error_message());
        cr_assert(run->at.step == 3 ? logged[0] != '\0' : bit / 8 == 12, "bit %d: %s", bit, path);
        lathe_run_close(run);
    }
}
