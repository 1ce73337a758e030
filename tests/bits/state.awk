# Compares two state/run.json, BEFORE and AFTER, by the lines that describe the training; those about files, plugins and
# the machine may differ. Numbers are decimal or the bits of a double as 16 hexadecimal digits. Prints
# "RELATIVE what" for the first difference, with the largest relative difference of all.
function digit(c) {
    return index("0123456789abcdef", c) - 1
}

function number(word,    i, high, fraction, exponent, x) {
    if (word !~ /^[0-9a-f]+$/ || length(word) != 16)
        return word ~ /^-?[0-9.e+-]+$/ ? word + 0 : word
    high = digit(substr(word, 1, 1)) * 256 + digit(substr(word, 2, 1)) * 16 + digit(substr(word, 3, 1))
    for (i = 4; i <= 16; i++)
        fraction = fraction * 16 + digit(substr(word, i, 1))
    exponent = high % 2048
    x = exponent > 0 ? 1 + fraction / 4503599627370496 : fraction / 2251799813685248
    for (i = exponent; i < 1023; i++) x /= 2
    for (i = exponent; i > 1023; i--) x *= 2
    return high >= 2048 ? -x : x
}

function found(relative, what) {
    if (relative > largest)
        largest = relative
    if (first == "")
        first = what
}

function compare(key, a, b,    i, n, m, one, other, x, y, d) {
    n = split(a, one, /[^0-9a-zA-Z.+-]+/)
    m = split(b, other, /[^0-9a-zA-Z.+-]+/)
    if (n != m)
        found(1e30, key ": other fields")
    for (i = 1; i <= n && n == m; i++) {
        if (one[i] "" == other[i] "")
            continue
        x = number(one[i])
        y = number(other[i])
        d = x > y ? x - y : y - x
        found(x ~ /^-?[0-9]/ && y ~ /^-?[0-9]/ && x != 0 ? d / (x < 0 ? -x : x) : 1, key ": " x " -> " y)
    }
}

BEGIN {
    n_keys = split("step micro tokens seed cursor early_stopping scheduler_state skipped skipped_in_row scaler " \
                   "loss_spikes weight_average accumulated", keys, " ")
    for (i = 1; i <= n_keys; i++)
        wanted[keys[i]] = 1
    while ((getline line < after_file) > 0)
        if (line ~ /^  "/) {
            split(line, part, "\"")
            after[part[2]] = line
        }
    while ((getline line < before_file) > 0) {
        split(line, part, "\"")
        if (line !~ /^  "/ || !(part[2] in wanted))
            continue
        if (!(part[2] in after))
            found(1e30, "has no " part[2])
        else
            compare(part[2], line, after[part[2]])
    }
    if (first != "")
        print (largest >= 1e30 ? "inf" : largest), first
}
