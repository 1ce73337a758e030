/* The sums of products of codes: 8-bit codes of a weight, to which 128 is added so that they have
 * no sign, by 8-bit codes of activations. Sums of integers are exact, so every loop gives the same
 * bits. int8_loops.c includes this file once for each set of instructions, with
 *
 *   INT8_LOOP(name)   the name of a function for that set
 *   INT8_TARGET       the attribute of its functions
 *   INT8_DOT          1: the processor adds up products of four bytes at once
 */

/* sum + products of four bytes w (without sign) and four bytes x (with one), lane by lane. */
INT8_TARGET static inline __attribute__((always_inline)) vi INT8_LOOP(add_bytes)(vi sum, vi w, vi x)
{
#if VL == 16 && INT8_DOT
    return _mm512_dpbusd_epi32(sum, w, x);
#elif VL == 16
    const __m512i low = _mm512_set1_epi16(0xff);
    const __m512i even =
        _mm512_madd_epi16(_mm512_and_si512(w, low), _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8));
    const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(w, 8), _mm512_srai_epi16(x, 8));
    return _mm512_add_epi32(sum, _mm512_add_epi32(even, odd));
#elif INT8_DOT
    return _mm256_dpbusd_avx_epi32(sum, w, x);
#else
    const __m256i low = _mm256_set1_epi16(0xff);
    const __m256i even =
        _mm256_madd_epi16(_mm256_and_si256(w, low), _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(w, 8), _mm256_srai_epi16(x, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
#endif
}

/* ---- a panel: INT8_OUTPUTS outputs, four columns of each in a lane ---- */

INT8_TARGET static inline __attribute__((always_inline)) void
INT8_LOOP(panel_rows)(const int8_panel *p, int rows)
{
    vi acc[INT8_TILE_ROWS][INT8_VECTORS];
    const uint8_t *w = p->codes;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int c = 0; c < INT8_VECTORS; c++)
            acc[i][c] = i_zero();
    for (int64_t k = 0; k < p->stride; k += 4) {
        vi q[INT8_VECTORS];
#pragma GCC unroll 4
        for (int c = 0; c < INT8_VECTORS; c++)
            q[c] = i_load(w + c * VB);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            const vi x = i_four_bytes(p->x + i * p->stride + k);
#pragma GCC unroll 4
            for (int c = 0; c < INT8_VECTORS; c++)
                acc[i][c] = INT8_LOOP(add_bytes)(acc[i][c], q[c], x);
        }
        w += INT8_VECTORS * VB;
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int c = 0; c < INT8_VECTORS; c++)
            i_store(p->sums + i * INT8_OUTPUTS + c * VL, acc[i][c]);
}

INT8_TARGET static void INT8_LOOP(panel)(const int8_panel *p, int64_t rows)
{
    switch (rows) {
#if VL == 16
    case 6:
        INT8_LOOP(panel_rows)(p, 6);
        return;
    case 5:
        INT8_LOOP(panel_rows)(p, 5);
        return;
#endif
    case 4:
        INT8_LOOP(panel_rows)(p, 4);
        return;
    case 3:
        INT8_LOOP(panel_rows)(p, 3);
        return;
    case 2:
        INT8_LOOP(panel_rows)(p, 2);
        return;
    default:
        INT8_LOOP(panel_rows)(p, 1);
    }
}

/* ---- rows of the weight as they lie, for few rows of x ---- */

/* One row of the weight after the other: memory is read in order. */
INT8_TARGET static inline __attribute__((always_inline)) void
INT8_LOOP(lines_by)(const int8_lines *p, int rows)
{
    const int64_t whole = p->k / VB * VB, left = p->k - whole;
    const vi sign = i_set((int32_t)0x80808080u);
    for (int64_t o = 0; o < p->n; o++) {
        const uint8_t *const q = p->codes + o * p->k;
        vi acc[INT8_FEW_ROWS];
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
            acc[i] = i_zero();
        for (int64_t k = 0; k < whole; k += VB) {
            const vi w = i_xor(i_load(q + k), sign);
            _mm_prefetch((const char *)q + k + INT8_AHEAD, _MM_HINT_T0);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++)
                acc[i] = INT8_LOOP(add_bytes)(acc[i], w, i_load(p->x + i * p->stride + k));
        }
        if (left > 0) {
            const vi w = i_xor(i_load_first(q + whole, left), sign);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++)
                acc[i] = INT8_LOOP(add_bytes)(acc[i], w, i_load(p->x + i * p->stride + whole));
        }
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
            p->sums[i * INT8_OUTPUTS + o] = i_sum(acc[i]);
    }
}

INT8_TARGET static void INT8_LOOP(lines)(const int8_lines *p, int64_t rows)
{
    if (rows == 1)
        INT8_LOOP(lines_by)(p, 1);
    else if (rows == 2)
        INT8_LOOP(lines_by)(p, 2);
    else if (rows == 3)
        INT8_LOOP(lines_by)(p, 3);
    else
        INT8_LOOP(lines_by)(p, 4);
}
