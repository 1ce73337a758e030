/* Makes the reward under test from lines of TOML, and scores completions with it. */
#ifndef LATHE_TEST_SUPPORT_REWARD_CASE_H
#define LATHE_TEST_SUPPORT_REWARD_CASE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "lathe/reward.h"
#include "mock_plugin.h"
#include "plug/plugin_instance.h"
#include "plug/schema_check.h"

static lathe_arena reward_arena;
static lathe_instance reward_instance;

/* Makes reward_instance; returns the status of create(). */
static inline lathe_status reward_make(const char *toml)
{
    static lathe_component component = {NULL, "reward.so"};
    const lathe_schema_scope scope = {.section = "reward", .place = {"run.toml", 0, 0}};
    lathe_toml_node *table = NULL;
    lathe_value *values = NULL;
    lathe_diags diags = {0};
    component.plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    cr_assert_eq(lathe_toml_load("run.toml", toml, (int64_t)strlen(toml), &reward_arena, &table),
                 LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_schema_check(&scope, table, component.plugin->fields,
                                    component.plugin->n_fields, &reward_arena, &diags, &values),
                 LATHE_OK);
    cr_assert_eq(lathe_diags_status(&diags), LATHE_OK, "%s", lathe_error_message());
    lathe_diags_fini(&diags);
    return lathe_instance_init(&reward_instance, &component, values);
}

static inline void reward_opens(const char *toml)
{
    cr_assert_eq(reward_make(toml), LATHE_OK, "%s", lathe_error_message());
}

static inline void reward_refuses(const char *toml, const char *message)
{
    cr_assert_eq(reward_make(toml), LATHE_E_CONFIG);
    cr_expect_str_eq(lathe_error_message(), message);
}

static inline void reward_close(void)
{
    lathe_instance_fini(&reward_instance);
    lathe_arena_fini(&reward_arena);
}

static inline lathe_reward_item reward_item(const char *completion, const char *record)
{
    return (lathe_reward_item){.size = (uint32_t)sizeof(lathe_reward_item),
                               .prompt = "2 + 3?",
                               .prompt_bytes = 6,
                               .completion = completion,
                               .completion_bytes = (int64_t)strlen(completion),
                               .record = record,
                               .record_bytes = (int64_t)strlen(record)};
}

static inline lathe_status reward_try(const lathe_reward_item *items, int32_t n, double *out)
{
    const lathe_reward_v1 *table = reward_instance.table;
    lathe_error_clear();
    return table->score(reward_instance.self, items, n, out);
}

/* The score of one completion. */
static inline double reward_of(const char *completion, const char *record)
{
    const lathe_reward_item item = reward_item(completion, record);
    double out = -99.0;
    cr_assert_eq(reward_try(&item, 1, &out), LATHE_OK, "%s", lathe_error_message());
    return out;
}

/* The message of a completion that cannot be scored, and of a record that is why. */
static inline void reward_fails(const char *completion, const char *record, const char *message)
{
    const lathe_reward_item item = reward_item(completion, record);
    const lathe_reward_v1 *table = reward_instance.table;
    double out;
    if (LATHE_HAS(table, check_record)) {
        cr_assert_eq(table->check_record(reward_instance.self, record, item.record_bytes),
                     LATHE_E_CONFIG);
        cr_expect_str_eq(lathe_error_message(), message);
    }
    cr_assert_neq(reward_try(&item, 1, &out), LATHE_OK);
    cr_expect_str_eq(lathe_error_message(), message);
}

#endif
