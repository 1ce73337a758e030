/* lathe tokenizer train, encode, decode, check: output, files, exit codes. */
#include "cli_case.h"

#include <jansson.h>
#include <sys/stat.h>

#define LATHE LATHE_TEST_BUILD "/bin/lathe tokenizer "
#define GOLDEN LATHE_TEST_DATA "/golden/data/tokenizer/"

TestSuite(cli_tokenizer, .init = make_folder, .fini = remove_folder);

Test(cli_tokenizer, encode_prints_ids_as_text_and_json)
{
    expect(LATHE "encode bytes --text 'Hi!'", 0, "72 105 33\n");
    expect("printf 'Hi!' | " LATHE "encode bytes", 0, "72 105 33\n");
    expect("printf 'Hi!' >file; " LATHE "encode bytes file", 0, "72 105 33\n");
    expect(LATHE "encode bytes --text ''", 0, "\n");
    cr_assert_eq(run(LATHE "encode " GOLDEN "llama3.json --text 'Hello world' --json --pieces "
                           "--add-special"),
                 0);
    json_t *got = json_loads(output, 0, NULL);
    cr_assert_not_null(got, "%s", output);
    const json_t *ids = json_object_get(got, "ids"), *pieces = json_object_get(got, "pieces");
    cr_expect_eq(json_integer_value(json_object_get(got, "bytes")), 11);
    cr_expect_eq((size_t)json_integer_value(json_object_get(got, "tokens")), json_array_size(ids));
    cr_assert_eq(json_array_size(ids), json_array_size(pieces));
    cr_expect_eq(json_integer_value(json_array_get(ids, 0)), 0);
    cr_expect_str_eq(json_string_value(json_array_get(pieces, 0)), "<|begin_of_text|>");
    cr_expect_str_eq(json_string_value(json_array_get(pieces, 1)), "Hello");
    json_decref(got);
}

Test(cli_tokenizer, encode_makes_bytes_visible)
{
    cr_assert_eq(run("printf 'a\\n\\377\\303\\251\"' | " LATHE "encode bytes --pieces"), 0);
    cr_expect_str_eq(output,
                     "97\t\"a\"\n10\t\"\\n\"\n255\t\"\\xff\"\n195\t\"\\xc3\"\n169\t\"\\xa9\"\n"
                     "34\t\"\\\"\"\n");
    expect(LATHE "encode " GOLDEN "gpt2.json --text '<|endoftext|>' --pieces", 0, "special\n");
    cr_assert_eq(run(LATHE "encode " GOLDEN "gpt2.json --text '<|endoftext|>' --pieces --no-added"),
                 0);
    cr_expect_null(strstr(output, "special"), "%s", output);
}

Test(cli_tokenizer, decode_gives_the_bytes_back)
{
    expect(LATHE "decode bytes 72 105 33", 0, "Hi!");
    expect(LATHE "decode bytes '[72, 105, 256]'", 0, "Hi<|endoftext|>");
    expect(LATHE "decode bytes --skip-special 72 105 256 && echo .", 0, "Hi.");
    cr_assert_eq(run("head -c 3000 /dev/urandom >in; " LATHE "encode " GOLDEN
                     "gpt2.json in | " LATHE "decode " GOLDEN "gpt2.json - | cmp - in"),
                 0);
    expect(LATHE "decode bytes 7x 2>&1", 2, "'7x' is no token id");
    expect(LATHE "decode bytes 257 2>&1", 2, "id 257");
    expect(LATHE "decode bytes 99999999999 2>&1", 2, "no token id");
}

Test(cli_tokenizer, train_writes_what_encode_reads)
{
    expect(LATHE "train " GOLDEN "corpus.txt -o out --vocab-size 400 --pattern qwen2 "
                 "--special '<s>' --special='</s>'",
           0, "out/tokenizer.json: 400 tokens");
    cr_assert_eq(run(LATHE "encode out --text '</s><s>'"), 0);
    cr_expect_str_eq(output, "1 0\n");
    expect(LATHE "check out " GOLDEN "corpus.txt", 0, "no problem found");
    cr_expect_not_null(strstr(output, "decoded: the same bytes"), "%s", output);
    cr_expect_not_null(strstr(output, "eos             0 <s>"), "%s", output);
    expect(LATHE "train " GOLDEN "corpus.txt -o small --vocab-size 5000 --min-frequency 30", 0,
           "fewer than the 5000 requested");
    expect(LATHE "train " GOLDEN "corpus.txt --output again --pattern '[a-z]+' --vocab-size 300", 0,
           "300 tokens");
}

Test(cli_tokenizer, train_makes_metaspace_vocabularies)
{
    expect(LATHE "train " GOLDEN "corpus.txt -o meta --kind metaspace --byte-fallback "
                 "--vocab-size 600",
           0, "meta/tokenizer.json: 600 tokens");
    cr_assert_eq(run(LATHE "encode meta --text 'the \360\235\204\236' --pieces"), 0);
    cr_expect_not_null(strstr(output, "\342\226\201the"), "%s", output);
    expect("printf 'the tool, \360\235\204\236 and on' >file; " LATHE "encode meta file | " LATHE
           "decode meta - | cmp - file && echo same",
           0, "same");
    expect(LATHE "check meta", 0, "eos             2 </s>");
    expect(LATHE "train x -o out --byte-fallback 2>&1", 2, "--byte-fallback is for");
    expect(LATHE "train x -o out --kind metaspace --pattern '[a-z]+' 2>&1", 2,
           "expected one of them");
}

Test(cli_tokenizer, train_says_what_it_cannot)
{
    expect(LATHE "train " GOLDEN "corpus.txt 2>&1", 2, "expected -o DIR");
    expect(LATHE "train -o out 2>&1", 2, "expected tokenizer train FILE...");
    expect(LATHE "train x -o out --kind unigram 2>&1", 2, "--kind is 'unigram'");
    expect(LATHE "train x -o out --vocab-size 12 2>&1", 2,
           "a vocabulary of 12 tokens; expected 257 (1 special token and 256 bytes)");
    expect(LATHE "train /no/such/file -o out 2>&1", 2, "/no/such/file");
    expect(LATHE "train x -q out 2>&1", 2, "unknown option '-q'");
    expect(LATHE "train x -o 2>&1", 2, "'-o' needs a value");
    expect("touch f; " LATHE "train x -o f 2>&1", 2, "f exists already");
    expect("printf 'a\\0b' >nul; echo ab >text; " LATHE "train nul text -o out --vocab-size 300", 0,
           "1 files left out");
    expect(LATHE "train " GOLDEN "corpus.txt -o other --pattern '(' 2>&1", 2,
           "regular expression (");
    expect(LATHE "train text -o out --vocab-size 300 2>&1", 2,
           "out/tokenizer.json: exists already");
}

Test(cli_tokenizer, check_tells_all_parts)
{
    cr_assert_eq(run(LATHE "check " GOLDEN "qwen2.json " GOLDEN "corpus.txt --json"), 0);
    json_t *got = json_loads(output, 0, NULL);
    cr_assert_not_null(got, "%s", output);
    cr_expect_str_eq(json_string_value(json_object_get(got, "kind")), "BPE");
    cr_expect_str_eq(json_string_value(json_object_get(got, "normalizer")), "NFC");
    cr_expect_str_eq(json_string_value(json_object_get(got, "pre_tokenizer")),
                     "Sequence(Split, ByteLevel)");
    cr_expect_eq(json_array_size(json_object_get(got, "problems")), 0);
    const json_t *text = json_array_get(json_object_get(got, "texts"), 0);
    cr_expect(json_is_true(json_object_get(text, "round_trip")));
    cr_expect_eq(json_integer_value(json_object_get(text, "bytes")), 1886);
    cr_expect_eq(json_integer_value(json_object_get(text, "chars")), 1528); /* wc -m */
    json_decref(got);
    /* e and U+0301 become one character: this is the normalizer's work, not an error. */
    expect("printf 'cafe\\314\\201' | " LATHE "check " GOLDEN "qwen2.json -", 0,
           "decoded: other bytes from 3 on");
}

/* The golden gpt2.json without the byte 0xf1, which no assigned Unicode character uses. */
#define LACKS_F1 "sed 's/\"\303\261\": [0-9]*,//' " GOLDEN "gpt2.json >lacks.json; "

Test(cli_tokenizer, missing_bytes_are_reported_by_check)
{
    expect(
        LACKS_F1 LATHE "check lacks.json", 0,
        "warning: bytes without a token: 1 of 256 (0xf1); encoding leaves them out of a text, or "
        "replaces them by the unknown token; to count them in your data, name a FILE");
    cr_expect_null(strstr(output, "no problem found"), "%s", output);
    expect("printf 'a\361b\361' >file; " LATHE "check lacks.json file", 1,
           "problem: file: 2 bytes of the text have no token");
    cr_expect_not_null(strstr(output, "2 left out, 0 became the unknown token: 0xf1 (2)"), "%s",
                       output);
    cr_assert_eq(run(LATHE "check lacks.json file --json"), 1);
    json_t *got = json_loads(output, 0, NULL);
    cr_assert_not_null(got, "%s", output);
    const json_t *text = json_array_get(json_object_get(got, "texts"), 0);
    const json_t *lost = json_object_get(text, "lost");
    cr_expect_eq(json_integer_value(json_object_get(lost, "left_out")), 2);
    cr_expect_str_eq(json_string_value(json_object_get(lost, "bytes")), "0xf1 (2)");
    cr_expect_eq(
        json_integer_value(json_object_get(json_object_get(got, "missing_bytes"), "count")), 1);
    cr_expect_eq(json_array_size(json_object_get(got, "warnings")), 1);
    json_decref(got);
    cr_assert_eq(run(LATHE "check " GOLDEN "gpt2.json"), 0);
    cr_expect_null(strstr(output, "warning"), "%s", output);
    cr_expect_not_null(strstr(output, "no problem found"), "%s", output);
}

Test(cli_tokenizer, check_counts_the_tokens_without_a_row_not_the_ids)
{
    /* ids 0, 1 and 9 have tokens; a model of 5 rows lacks one token, not five */
    put("tokenizer.json",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]},\"pre_tokenizer\":"
        "null,\"decoder\":null,\"added_tokens\":[{\"id\":9,\"content\":\"<|endoftext|>\","
        "\"special\":true}]}");
    put("config.json", "{\"vocab_size\": 5}");
    expect(LATHE "check .", 1,
           "vocab_size is 5, and the tokenizer's ids go up to 9: the model has no row for 1 of its "
           "tokens");
}

Test(cli_tokenizer, training_on_an_empty_file_is_refused)
{
    put("empty.txt", "");
    put("binary.txt", "\377\376");
    expect(LATHE "train empty.txt binary.txt -o learnt 2>&1", 2,
           "lathe tokenizer train: there is no text to train a tokenizer on");
    expect(LATHE "train empty.txt --kind metaspace -o learnt 2>&1", 2, "there is no text");
    expect("ls -d learnt* 2>/dev/null", 2, ""); /* neither the folder nor an unfinished one */
}

Test(cli_tokenizer, missing_bytes_of_a_text_are_warned_of_once)
{
    expect(LACKS_F1 "printf 'a\361b\361' >file; " LATHE "encode lacks.json file 2>&1 >ids", 0,
           "lathe: warning: file: the tokenizer has no token for 2 bytes of the text, which were "
           "left out: 0xf1 (2)");
    expect("grep -c warning <<END\n$(" LATHE "encode lacks.json file 2>&1)\nEND", 0, "1\n");
    cr_assert_eq(run(LATHE "decode lacks.json - <ids"), 0);
    cr_expect_str_eq(output, "ab");
    cr_assert_eq(run(LATHE "encode lacks.json --text ab 2>&1"), 0);
    cr_expect_null(strstr(output, "warning"), "%s", output);
}

Test(cli_tokenizer, lines_of_json_are_texts_of_their_own)
{
    expect("printf '\"Hi\"\\n\"\"\\n \"a\\\\n\\\\u0000\" \\n' | " LATHE "encode bytes --json-lines",
           0, "[72, 105]\n[]\n[97, 10, 0]\n");
    expect("printf '[72, 105]\\n[]\\n[97, 10, 0, 34, 255]\\n' | " LATHE "decode bytes --json-lines",
           0, "\"Hi\"\n\"\"\n\"a\\u000a\\u0000\\\"\357\277\275\"\n");
    expect("printf '\"a\"\\nx\\n' | " LATHE "encode bytes --json-lines 2>&1", 2,
           "standard input:2:1: expected a JSON string, one per line");
    expect("printf '\"a\" \"b\"' | " LATHE "encode bytes --json-lines 2>&1", 2,
           "standard input:1:5: text after the JSON string");
    expect("printf '\"\\\\x\"' | " LATHE "encode bytes --json-lines 2>&1", 2, "standard input:1:");
    expect(LATHE "encode bytes --json-lines --pieces 2>&1", 2, "--json-lines prints ids alone");
    expect(LATHE "decode bytes --json-lines 7 2>&1", 2, "'7' is not expected");
}

Test(cli_tokenizer, check_reads_a_vocabulary_with_nul)
{
    expect("echo '{\"model\": {\"type\": \"BPE\", \"vocab\": {\"\\u0000\": 0, \"a\": 1}, "
           "\"merges\": []}, \"added_tokens\": [{\"id\": 2, \"content\": \"<\\u0000>\", "
           "\"special\": true}]}' >nul.json; "
           "printf 'a\\0a<\\0>' | " LATHE "encode nul.json",
           0, "1 0 1 2\n");
    expect(LATHE "check nul.json", 1, "special_tokens  1");
    expect("mkdir nul; cp nul.json nul/tokenizer.json; echo '{\"eos_token\": \"<\\u0000>\"}' "
           ">nul/tokenizer_config.json; " LATHE "check nul",
           0, "eos             2 <\\x00>");
}

Test(cli_tokenizer, check_finds_what_is_wrong)
{
    expect("mkdir m && cp " GOLDEN "gpt2.json m/tokenizer.json && echo '{\"vocab_size\": 100}' "
           ">m/config.json && " LATHE "check m",
           1, "problem: m/config.json: vocab_size is 100");
    expect("echo '{\"vocab_size\": 4096}' >m/config.json && " LATHE "check m", 0,
           "config.json has 4096");
    expect("sed 's/\"normalizer\": null/\"normalizer\": {\"type\": \"NoSuch\"}/' " GOLDEN
           "gpt2.json >odd.json; " LATHE "check odd.json",
           1, "problem: odd.json: normalizer");
    expect("sed 's/<|endoftext|>/<|end|>/' " GOLDEN "gpt2.json >no_eos.json; " LATHE
           "check no_eos.json",
           1,
           "problem: no end-of-text token, so no data can be prepared with this tokenizer: name "
           "one with "
           "eos_token in tokenizer_config.json, beside tokenizer.json");
    expect("head -c 5000 " GOLDEN "gpt2.json >torn.json; " LATHE "check torn.json 2>&1", 2,
           "torn.json");
    expect(LATHE "check nowhere 2>&1", 2, "nowhere: no such file or folder");
    expect(LATHE "check bytes nowhere 2>&1", 2, "nowhere");
}
