/* The network of any policy on the time steps of a batch: its outputs, the pull-back of slopes of the outputs, and the tangents of both.
 *
 * The density is JAX's part, see `rows.py`. Activations that are not given are computed again, 16 rows at a time.
 */

/* The activations of rows from `at` on: those given, or computed */
static inline const float *activations(Net net, const float *seen, int many, const float *kept, float (*restrict computed)[KEPT]) {
    float out[OUTPUTS][LANES];
    if (kept) return kept;
    forward(net, seen, many, computed[0], out);
    return computed[0];
}

/* net, observations [n][H][INPUTS], lengths [n] -> outputs [n][H][OUTPUTS], activations [n][H][KEPT] if asked for */
XLA_FFI_Error *outputs_of_rows(XLA_FFI_CallFrame *frame) {
    if (asked_for_version(frame)) return NULL;
    Call call = read_call(frame, 3);
    int64_t n = length(&call, 6, 0), H = length(&call, 6, 1);
    float out[OUTPUTS][LANES];
    for (int64_t run = 0; run < call.count; run++) {
        Net net = net_of_run(&call, run);
        const float *seen = of_run(&call, 4, run);
        const int *lengths = (const int *)of_run(&call, 5, run);
        float *result = of_run(&call, 6, run), *kept = result_of_run(&call, 7, run);
        for (int64_t i = 0; i < n; i++) {
            for (int64_t t = 0; t < lengths[i]; t += LANES) {
                int many = lengths[i] - t < LANES ? (int)(lengths[i] - t) : LANES;
                int64_t at = i * H + t;
                forward(net, seen + at * INPUTS, many, kept ? kept + at * KEPT : NULL, out);
                for (int row = 0; row < many; row++)
                    for (int o = 0; o < OUTPUTS; o++) result[(at + row) * OUTPUTS + o] = out[o][row];
            }
            memset(result + (i * H + lengths[i]) * OUTPUTS, 0, sizeof(float) * (H - lengths[i]) * OUTPUTS);
        }
    }
    return NULL;
}

/* net, observations, lengths, tangent of the net, activations if there are any -> tangents of the outputs [n][H][OUTPUTS] */
XLA_FFI_Error *tangents_of_rows(XLA_FFI_CallFrame *frame) {
    if (asked_for_version(frame)) return NULL;
    Call call = read_call(frame, 3);
    int made = (int)frame->args.size;
    int64_t n = length(&call, made, 0), H = length(&call, made, 1);
    float computed[LANES][KEPT];
    for (int64_t run = 0; run < call.count; run++) {
        Net net = net_of_run(&call, run);
        const float *seen = of_run(&call, 4, run), *kept = made > 10 ? of_run(&call, 10, run) : NULL;
        const int *lengths = (const int *)of_run(&call, 5, run);
        const float *d_into = of_run(&call, 6, run), *d_bias = of_run(&call, 7, run);
        const float *d_out = of_run(&call, 8, run), *d_last = of_run(&call, 9, run);
        float *result = of_run(&call, made, run);
        for (int64_t i = 0; i < n; i++) {
            for (int64_t t = 0; t < lengths[i]; t += LANES) {
                int many = lengths[i] - t < LANES ? (int)(lengths[i] - t) : LANES;
                int64_t at = i * H + t;
                const float *rows = seen + at * INPUTS;
                const float *hidden = activations(net, rows, many, kept ? kept + at * KEPT : NULL, computed);
                Vector total[LANES][OUTPUTS];
                for (int row = 0; row < many; row++)
                    for (int o = 0; o < OUTPUTS; o++) total[row][o] = (Vector){0};
                for (int part = 0; part < UNITS; part += WIDTH) {
                    Vector bias = load(d_bias + part), into[INPUTS], out[OUTPUTS], last[OUTPUTS];
                    for (int k = 0; k < INPUTS; k++) into[k] = load(d_into + k * UNITS + part);
                    for (int o = 0; o < OUTPUTS; o++) out[o] = load(d_out + o * UNITS + part), last[o] = load(net.out + o * UNITS + part);
                    for (int row = 0; row < many; row++) {
                        Vector h = load(hidden + row * KEPT + part), x = bias;
                        for (int k = 0; k < INPUTS; k++) x += rows[row * INPUTS + k] * into[k];
                        x -= x * h * h;
                        for (int o = 0; o < OUTPUTS; o++) total[row][o] += x * last[o] + h * out[o];
                    }
                }
                for (int row = 0; row < many; row++)
                    for (int o = 0; o < OUTPUTS; o++) result[(at + row) * OUTPUTS + o] = sum(total[row][o]) + d_last[o];
            }
            memset(result + (i * H + lengths[i]) * OUTPUTS, 0, sizeof(float) * (H - lengths[i]) * OUTPUTS);
        }
    }
    return NULL;
}

/* net, observations, lengths, slopes of the outputs [sets][n][H][OUTPUTS], activations if there are any ->
 * sums over equal parts of the batch, [sets][parts][INPUTS + 1 + OUTPUTS][UNITS] and [sets][parts][OUTPUTS] */
XLA_FFI_Error *pull_back_of_rows(XLA_FFI_CallFrame *frame) {
    if (asked_for_version(frame)) return NULL;
    Call call = read_call(frame, 4);
    int made = (int)frame->args.size;
    int64_t sets = length(&call, made, 0), parts = length(&call, made, 1), n = length(&call, 6, 1), H = length(&call, 6, 2);
    float computed[LANES][KEPT], slopes[OUTPUTS][LANES];
    for (int64_t run = 0; run < call.count; run++) {
        Net net = net_of_run(&call, run);
        const float *seen = of_run(&call, 4, run), *pulls = of_run(&call, 6, run);
        const float *kept = made > 7 ? of_run(&call, 7, run) : NULL;
        const int *lengths = (const int *)of_run(&call, 5, run);
        float(*wide)[INPUTS + 1 + OUTPUTS][UNITS] = (void *)of_run(&call, made, run);
        float(*narrow)[OUTPUTS] = (void *)of_run(&call, made + 1, run);
        memset(wide, 0, sizeof *wide * sets * parts);
        memset(narrow, 0, sizeof *narrow * sets * parts);
        for (int64_t i = 0; i < n; i++)
            for (int64_t t = 0; t < lengths[i]; t += LANES) {
                int many = lengths[i] - t < LANES ? (int)(lengths[i] - t) : LANES;
                int64_t at = i * H + t, part = i / (n / parts);
                const float *rows = seen + at * INPUTS;
                const float *hidden = activations(net, rows, many, kept ? kept + at * KEPT : NULL, computed);
                for (int64_t set = 0; set < sets; set++) {
                    to_lanes(pulls + ((set * n * H) + at) * OUTPUTS, OUTPUTS, many, slopes);
                    for (int o = 0; o < OUTPUTS; o++)
                        for (int row = 0; row < many; row++) narrow[set * parts + part][o] += slopes[o][row];
                    backward(net, rows, many, hidden, slopes, wide[set * parts + part]);
                }
            }
    }
    return NULL;
}

/* net, observations, lengths, slopes of the outputs [sets][n][H][OUTPUTS], tangent of the net ->
 * tangents of the sums over equal parts of the batch, [sets][parts][INPUTS + 1 + OUTPUTS][UNITS] */
XLA_FFI_Error *pull_back_tangents_of_rows(XLA_FFI_CallFrame *frame) {
    if (asked_for_version(frame)) return NULL;
    Call call = read_call(frame, 4);
    int64_t sets = length(&call, 11, 0), parts = length(&call, 11, 1), n = length(&call, 6, 1), H = length(&call, 6, 2);
    float computed[LANES][KEPT], slopes[OUTPUTS][LANES];
    for (int64_t run = 0; run < call.count; run++) {
        Net net = net_of_run(&call, run);
        const float *seen = of_run(&call, 4, run), *pulls = of_run(&call, 6, run);
        const int *lengths = (const int *)of_run(&call, 5, run);
        const float *d_into = of_run(&call, 7, run), *d_bias = of_run(&call, 8, run), *d_out = of_run(&call, 9, run);
        float(*made)[INPUTS + 1 + OUTPUTS][UNITS] = (void *)of_run(&call, 11, run);
        memset(made, 0, sizeof *made * sets * parts);
        for (int64_t i = 0; i < n; i++)
            for (int64_t t = 0; t < lengths[i]; t += LANES) {
                int many = lengths[i] - t < LANES ? (int)(lengths[i] - t) : LANES;
                int64_t at = i * H + t, part = i / (n / parts);
                const float *rows = seen + at * INPUTS, *hidden = activations(net, rows, many, NULL, computed);
                for (int64_t set = 0; set < sets; set++) {
                    float(*sums)[UNITS] = made[set * parts + part];
                    to_lanes(pulls + ((set * n * H) + at) * OUTPUTS, OUTPUTS, many, slopes);
                    for (int unit = 0; unit < UNITS; unit += WIDTH)
                        for (int row = 0; row < many; row++) {
                            Vector h = load(hidden + row * KEPT + unit), moved = load(d_bias + unit), back = {0}, d_back = {0};
                            for (int k = 0; k < INPUTS; k++) moved += rows[row * INPUTS + k] * load(d_into + k * UNITS + unit);
                            moved -= moved * h * h; /* of the hidden unit */
                            for (int o = 0; o < OUTPUTS; o++) {
                                back += slopes[o][row] * load(net.out + o * UNITS + unit);
                                d_back += slopes[o][row] * load(d_out + o * UNITS + unit);
                            }
                            d_back -= d_back * h * h + 2 * back * h * moved;
                            for (int k = 0; k < INPUTS; k++)
                                store(sums[k] + unit, load(sums[k] + unit) + rows[row * INPUTS + k] * d_back);
                            store(sums[INPUTS] + unit, load(sums[INPUTS] + unit) + d_back);
                            for (int o = 0; o < OUTPUTS; o++)
                                store(sums[INPUTS + 1 + o] + unit, load(sums[INPUTS + 1 + o] + unit) + slopes[o][row] * moved);
                        }
                }
            }
    }
    return NULL;
}
