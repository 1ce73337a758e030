/* The verifiable reward: answers that are found and compared, and records that have none. */
#include "support/reward_case.h"

TestSuite(match_reward, .fini = reward_close);

#define GSM8K "pattern = '####\\s*(-?[$0-9.,]+)'\ncolumn_pattern = '####\\s*(-?[$0-9.,]+)'\n"

Test(match_reward, answers_of_gsm8k_are_compared_as_numbers)
{
    const char record[] =
        "{\"question\": \"q\", \"answer\": \"20 * 60 = <<20*60=1200>>1200\\n#### 1,200\"}";
    reward_opens(GSM8K);
    cr_expect_eq(reward_of("So it is 1200.\n#### 1200", record), 1.0);
    cr_expect_eq(reward_of("#### 1,200.00", record), 1.0);
    cr_expect_eq(reward_of("####$1200", record), 1.0);
    cr_expect_eq(reward_of("#### 1200.", record), 1.0);
    cr_expect_eq(reward_of("#### 120", record), 0.0);
    cr_expect_eq(reward_of("#### -1200", record), 0.0);
    cr_expect_eq(reward_of("#### 12,00", record), 0.0);
    cr_expect_eq(reward_of("1200", record), 0.0);
    cr_expect_eq(reward_of("", record), 0.0);
}

Test(match_reward, the_last_or_the_first_match_counts)
{
    const char record[] = "{\"answer\": 7}";
    reward_opens("pattern = '\\d+'");
    cr_expect_eq(reward_of("3 and 4 make 7", record), 1.0);
    cr_expect_eq(reward_of("7, from 3 and 4", record), 0.0);
    reward_close();
    reward_opens("pattern = '\\d+'\nwhich = \"first\"");
    cr_expect_eq(reward_of("7, from 3 and 4", record), 1.0);
}

Test(match_reward, a_completion_without_an_answer_has_a_score_of_its_own)
{
    const char record[] = "{\"answer\": \"B\"}";
    reward_opens("pattern = 'Answer: ([A-D])'\nmissing = -0.5\nright = 2.0\nwrong = -0.25");
    cr_expect_eq(reward_of("Answer: B", record), 2.0);
    cr_expect_eq(reward_of("Answer: C", record), -0.25);
    cr_expect_eq(reward_of("I think B", record), -0.5);
    cr_expect_eq(reward_of("", record), -0.5);
}

Test(match_reward, without_a_pattern_the_whole_completion_is_the_answer)
{
    reward_opens("column = \"solution\"");
    cr_expect_eq(reward_of(" Paris\n", "{\"solution\": \"Paris\"}"), 1.0);
    cr_expect_eq(reward_of("paris", "{\"solution\": \"Paris\"}"), 0.0);
    cr_expect_eq(reward_of("0.50", "{\"solution\": 0.5}"), 1.0);
    cr_expect_eq(reward_of("true", "{\"solution\": true}"), 1.0);
}

Test(match_reward, text_is_compared_byte_by_byte)
{
    reward_opens("compare = \"text\"");
    cr_expect_eq(reward_of("1.0", "{\"answer\": \"1\"}"), 0.0);
    cr_expect_eq(reward_of("1", "{\"answer\": \"1\"}"), 1.0);
}

Test(match_reward, escapes_and_nested_values_of_a_record_are_read)
{
    reward_opens("column = \"an\\\"swer\"");
    cr_expect_eq(
        reward_of("\xe4\xbd\xa0 \xf0\x9f\xa6\x8a \"\n\\",
                  "{ \"meta\": {\"an\\\"swer\": \"no\", \"l\": [1, \"}]\", {}]},\n \"x\": "
                  "\"\\\\\" , \"an\\u0022swer\" : \"\\u4f60 \\ud83e\\udd8a \\\"\\n\\\\\"}"),
        1.0);
}

Test(match_reward, unicode_classes_are_known_to_patterns)
{
    reward_opens("pattern = '(\\p{L}+)$'");
    cr_expect_eq(reward_of("c'est d\xc3\xa9j\xc3\xa0", "{\"answer\": \"d\xc3\xa9j\xc3\xa0\"}"),
                 1.0);
}

Test(match_reward, a_record_without_the_answer_is_an_error)
{
    reward_opens("pattern = '\\d+'\ncolumn_pattern = '\\d+'");
    reward_fails(
        "7", "{\"question\": \"q\"}",
        "the record has no column \"answer\"; set reward.column to the column of the right "
        "answer");
    reward_fails("7", "{\"answer\": [7]}",
                 "column \"answer\" is an array; expected a string, a number or a truth value");
    reward_fails("7", "{\"answer\": null}",
                 "column \"answer\" is null; expected a string, a number or a truth value");
    reward_fails("7", "{\"answer\": \"seven\"}",
                 "column_pattern finds nothing in column \"answer\"");
}

Test(match_reward, a_right_answer_that_must_be_a_number_and_is_none_is_an_error)
{
    reward_opens("compare = \"number\"");
    cr_expect_eq(reward_of("seven", "{\"answer\": 7}"), 0.0);
    reward_fails("7", "{\"answer\": \"seven\"}",
                 "the right answer 'seven' in column \"answer\" is no number, as reward.compare = "
                 "\"number\" expects");
}

Test(match_reward, a_search_that_takes_too_long_ends_with_an_error)
{
    char text[64];
    memset(text, 'a', sizeof text);
    text[63] = '\0';
    reward_opens("pattern = '^(a|aa)+(a|aa)+$(?<=b)'");
    const lathe_reward_item item = reward_item(text, "{\"answer\": 1}");
    double out;
    cr_expect_eq(reward_try(&item, 1, &out), LATHE_E_UNSUPPORTED);
    cr_expect_not_null(strstr(lathe_error_message(), "takes too long"), "%s",
                       lathe_error_message());
}

Test(match_reward, a_wrong_expression_is_refused_with_its_place)
{
    cr_assert_eq(reward_make("pattern = '(\\d+'"), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(), "the regular expression '(\\d+' is wrong at "
                                                     "byte 4: missing closing parenthesis"),
                       "%s", lathe_error_message());
}

Test(match_reward, settings_without_an_effect_are_refused)
{
    reward_refuses("missing = -1.0", "reward match: missing has no effect without pattern: set "
                                     "pattern, or take it out");
    reward_refuses("which = \"first\"", "reward match: which has no effect without pattern: set "
                                        "pattern, or take it out");
    reward_refuses("right = 0.0",
                   "reward match: right is 0, and so is every other score: the reward "
                   "would be the same for every completion");
    reward_refuses("pattern = ''", "reward match: pattern is empty; expected a regular expression");
}

/* Numbers as models write them; each is 1 by itself, and by the pattern of README.md. */
Test(match_reward, what_is_written_around_a_number_is_no_part_of_it)
{
    static const struct {
        const char *completion, *answer;
    } right[] = {
        {"42,", "42"},
        {"42.", "42"},
        {"42", "42,"},
        {"$42.50.", "42.5"},
        {"42.50", "$42.50."},
        {"\xe2\x88\x92"
         "5",
         "-5"},
        {"-5", "\xe2\x88\x92"
               "5"},
        {"1 000", "1000"},
        {"1\xc2\xa0"
         "234\xc2\xa0"
         "567",
         "1,234,567"},
        {"12\xe2\x80\xaf"
         "000",
         "12000"},
        {"50%", "50"},
        {"50\\%", "50%"},
        {"**42**", "42"},
        {"**42.**", "42"},
        {"**42**.", "42"},
        {"`42`", "42"},
        {"$42$", "42"},
        {"-$3", "-3"},
    };
    static const char *const wrong[] = {"42a", "4 2", "42 1000", "50%%", "42,,", "1.5,000",
                                        "--5", "**",  "%",       "",     ".",    "$"};
    char record[128], completion[128];
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        for (int pass = 0; pass < 2; pass++) {
            reward_opens(pass == 0 ? "compare = \"number\""
                                   : "pattern = '####\\s*([^\\s\\w]*\\d(?:[\\d.,]|\\h\\d{3}(?!"
                                     "\\d))*[^\\s\\w]*)'");
            (void)snprintf(record, sizeof record, "{\"answer\": \"%s\"}", right[i].answer);
            (void)snprintf(completion, sizeof completion, "%s%s%s", pass ? "So #### " : "",
                           right[i].completion, pass ? " is it" : "");
            cr_expect_eq(reward_of(completion, record), 1.0, "'%s' against '%s'", completion,
                         right[i].answer);
            reward_close();
        }
    reward_opens("compare = \"number\"");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect_eq(reward_of(wrong[i], "{\"answer\": 42}"), 0.0, "'%s'", wrong[i]);
    cr_expect_eq(reward_of("50%", "{\"answer\": 0.5}"), 0.0);
}
