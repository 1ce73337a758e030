# Compares two tensors, as lines "BEFORE AFTER" of one element each. -v dtype: F64, F32, F16, BF16 or an integer type;
# the 16-bit floating-point types come as unsigned integers. Prints "RELATIVE INDEX BEFORE AFTER": the largest
# difference over the largest size of an element of BEFORE, and the first element that differs.
function power(n,    x) {
    x = 1
    while (n > 0) { x *= 2; n-- }
    while (n < 0) { x /= 2; n++ }
    return x
}

# The value of a 16-bit floating-point number with `bits` of fraction; NaN and infinity as text.
function decoded(u, bits, bias,    sign, exponent, fraction, one) {
    one = power(bits)
    sign = u >= 32768 ? -1 : 1
    u %= 32768
    exponent = int(u / one)
    fraction = u % one
    if (exponent == 2 * bias + 1)
        return fraction > 0 ? "nan" : sign > 0 ? "inf" : "-inf"
    return exponent == 0 ? sign * fraction * power(1 - bias - bits) : sign * (one + fraction) * power(exponent - bias - bits)
}

function value(x) {
    return dtype == "BF16" ? decoded(x, 7, 127) : dtype == "F16" ? decoded(x, 10, 15) : x
}

function size(x) {
    return x < 0 ? -x : x
}

{
    if ($1 == $2 && dtype !~ /^F|^BF/)
        before = after = $1
    else {
        before = value($1)
        after = value($2)
    }
    if ($1 != $2 && first == "")
        first = (NR - 1) " " before " " after
    if (before ~ /n/ || after ~ /n/) { # nan or inf
        if (before != after)
            undefined = 1
        next
    }
    if (size(before) > largest)
        largest = size(before)
    if (size(after - before) > difference)
        difference = size(after - before)
}

END {
    if (first == "")
        first = "? ? ?" # bits that are printed alike: 0 and -0
    print (undefined ? "inf" : difference == 0 ? 0 : largest == 0 ? 1 : difference / largest), first
}
