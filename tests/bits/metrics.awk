# Compares two metrics.jsonl, BEFORE and AFTER: every figure but times. Prints "RELATIVE what" for the first figure
# that differs, with the largest relative difference of all of them, and "note ..." for new figures and for memory.
function is_time(key) {
    return key ~ /_seconds$/ || key ~ /_per_s$/ || key == "share_of_peak"
}

# Fills figure[key] from a line of flat JSON.
function read_figures(line, figure,    n, i, part, key) {
    split("", figure)
    gsub(/^[{ ]+|[} ]+$/, "", line)
    n = split(line, part, /, "/)
    for (i = 1; i <= n; i++) {
        key = part[i]
        sub(/^"/, "", key)
        sub(/": .*/, "", key)
        sub(/^[^:]*": /, "", part[i])
        if (!is_time(key))
            figure[key] = part[i]
    }
}

function found(relative, what) {
    if (relative > largest)
        largest = relative
    if (first == "")
        first = what
}

function relative_difference(a, b,    d, size) {
    if (a !~ /^-?[0-9]/ || b !~ /^-?[0-9]/)
        return 1e30
    d = a > b ? a - b : b - a
    size = a < 0 ? -a : a
    return size > 0 ? d / size : 1
}

BEGIN {
    while ((getline line < before_file) > 0) {
        n_before++
        if ((getline other < after_file) <= 0) {
            found(1e30, "line " n_before " is missing")
            break
        }
        read_figures(line, before)
        read_figures(other, after)
        for (key in before) {
            if (!(key in after))
                found(1e30, "line " n_before " has no " key)
            else if (before[key] != after[key]) {
                if (key ~ /memory|offload_bytes/)
                    memory[key] = before[key] " -> " after[key]
                else
                    found(relative_difference(before[key] + 0 == before[key] ? before[key] + 0 : before[key],
                                              after[key] + 0 == after[key] ? after[key] + 0 : after[key]),
                          "line " n_before ", " key ": " before[key] " -> " after[key])
            }
        }
        for (key in after)
            if (!(key in before))
                new_keys[key] = 1
    }
    if ((getline other < after_file) > 0)
        found(1e30, "has more lines than before")
    if (n_before == 0)
        found(1e30, "is empty")
    if (first != "")
        print (largest >= 1e30 ? "inf" : largest), first
    for (key in new_keys)
        print "note new figure " key
    for (key in memory)
        print "note " key " " memory[key]
}
