/* A policy with one hidden layer of tanh units, on a CPU: rollouts, log-probabilities, and weighted sums of scores.
 *
 * `cpu.py` writes what comes before this text: the sizes below, and the functions act, log_prob, slope and env_step, which are
 * those of the policy and of the environment in C (`c_code.py`).
 *
 * A vector holds 16 hidden units. Their weights stay in registers while up to LANES rows pass by: steps of a trajectory, or
 * trajectories of a rollout, which hide how long each operation takes. The activations of these rows stay in the L1 cache for
 * the backward pass, whose sums are kept in registers too.
 */
#define WIDTH 16
#define KEPT (UNITS + (OUTPUTS + WIDTH - 1) / WIDTH * WIDTH) /* the activations of a row and its outputs, in whole vectors */
typedef float Vector __attribute__((vector_size(4 * WIDTH), aligned(4)));

typedef struct { const float *into, *bias, *out, *last; } Net; /* [INPUTS][UNITS], [UNITS], [OUTPUTS][UNITS], [OUTPUTS] */

static inline Vector load(const float *x) { return *(const Vector *)x; }
static inline void store(float *x, Vector v) { *(Vector *)x = v; }

static inline float sum(Vector v) {
    float x[WIDTH];
    store(x, v);
    for (int half = WIDTH / 2; half; half /= 2)
        for (int k = 0; k < half; k++) x[k] += x[k + half];
    return x[0];
}

static inline Vector within(Vector x, float most) { /* in [-most, most]; a NaN stays one */
#ifdef __AVX512F__
    return (Vector)_mm512_max_ps(_mm512_set1_ps(-most), _mm512_min_ps(_mm512_set1_ps(most), (__m512)x));
#else
    for (int k = 0; k < WIDTH; k++) x[k] = x[k] > most ? most : x[k] < -most ? -most : x[k];
    return x;
#endif
}

static inline Vector divided(Vector x, Vector by) { /* within one unit in the last place */
#ifdef __AVX512F__
    Vector inverse = (Vector)_mm512_rcp14_ps((__m512)by);
    Vector q = x * inverse;
    return q + inverse * (x - q * by); /* one step of Newton's method */
#else
    return x / by;
#endif
}

#if defined(__FMA__) || defined(__aarch64__)
#define SATURATED 7.99881172180175781f /* where the approximation is exactly 1, so that the slope of the unit is exactly 0 */
#else
#define SATURATED 7.90531110763549805f
#endif

static inline Vector tanh_of(Vector x) { /* the rational approximation that XLA uses too: no call, no branch */
    x = within(x, SATURATED);
    Vector q = x * x;
    Vector above = -2.76076847742355e-16f * q + 2.00018790482477e-13f;
    above = above * q - 8.60467152213735e-11f;
    above = above * q + 5.12229709037114e-08f;
    above = above * q + 1.48572235717979e-05f;
    above = above * q + 6.37261928875436e-04f;
    above = above * q + 4.89352455891786e-03f;
    Vector below = 1.19825839466702e-06f * q + 1.18534705686654e-04f;
    below = below * q + 2.26843463243900e-03f;
    below = below * q + 4.89352518554385e-03f;
    return divided(x * above, below);
}

/* The outputs for `many` rows of inputs, and the activations of the hidden units, which are kept for the backward pass. */
static inline void forward(Net net, const float *restrict seen, int many, float *restrict kept, float (*restrict out)[LANES]) {
    Vector total[LANES][OUTPUTS];
    for (int row = 0; row < many; row++)
        for (int o = 0; o < OUTPUTS; o++) total[row][o] = (Vector){0};
    for (int part = 0; part < UNITS; part += WIDTH) {
        Vector bias = load(net.bias + part), into[INPUTS], last[OUTPUTS];
        for (int k = 0; k < INPUTS; k++) into[k] = load(net.into + k * UNITS + part);
        for (int o = 0; o < OUTPUTS; o++) last[o] = load(net.out + o * UNITS + part);
        for (int row = 0; row < many; row++) {
            Vector x = bias;
            for (int k = 0; k < INPUTS; k++) x += seen[row * INPUTS + k] * into[k];
            x = tanh_of(x);
            if (kept) store(kept + row * KEPT + part, x);
            for (int o = 0; o < OUTPUTS; o++) total[row][o] += x * last[o];
        }
    }
    for (int row = 0; row < many; row++)
        for (int o = 0; o < OUTPUTS; o++) {
            out[o][row] = sum(total[row][o]) + net.last[o];
            if (kept) kept[row * KEPT + UNITS + o] = out[o][row];
        }
}

/* Add the slopes of `many` rows with respect to the weights, from those with respect to the outputs. */
static inline void backward(
    Net net, const float *restrict seen, int many, const float *restrict kept, float (*restrict pull)[LANES], float (*restrict sums)[UNITS]
) {
    for (int part = 0; part < UNITS; part += WIDTH) {
        Vector into[INPUTS], bias = load(sums[INPUTS] + part), out[OUTPUTS], last[OUTPUTS];
        for (int k = 0; k < INPUTS; k++) into[k] = load(sums[k] + part);
        for (int o = 0; o < OUTPUTS; o++) out[o] = load(sums[INPUTS + 1 + o] + part), last[o] = load(net.out + o * UNITS + part);
        for (int row = 0; row < many; row++) {
            Vector h = load(kept + row * KEPT + part), back = {0};
            for (int o = 0; o < OUTPUTS; o++) out[o] += pull[o][row] * h, back += pull[o][row] * last[o];
            back -= back * h * h;
            bias += back;
            for (int k = 0; k < INPUTS; k++) into[k] += seen[row * INPUTS + k] * back;
        }
        for (int k = 0; k < INPUTS; k++) store(sums[k] + part, into[k]);
        store(sums[INPUTS] + part, bias);
        for (int o = 0; o < OUTPUTS; o++) store(sums[INPUTS + 1 + o] + part, out[o]);
    }
}

/* XLA's side. An operand has leading axes over runs before its own axes; where it is the same for all runs, they have length 1. */
typedef struct { XLA_FFI_CallFrame *call; int axes; const int64_t *runs; int64_t count; } Call;

static XLA_FFI_Buffer *buffer(const XLA_FFI_CallFrame *call, int number) { /* the operands, then the results */
    return number < call->args.size ? call->args.args[number] : call->rets.rets[number - call->args.size];
}

static Call read_call(XLA_FFI_CallFrame *frame, int own_axes) { /* `own_axes`: of the first result; results have all runs */
    XLA_FFI_Buffer *first = frame->rets.rets[0];
    Call call = {frame, (int)first->rank - own_axes, first->dims, 1};
    for (int axis = 0; axis < call.axes; axis++) call.count *= first->dims[axis];
    return call;
}

static int64_t length(const Call *call, int number, int axis) { return buffer(call->call, number)->dims[call->axes + axis]; }

/* The numbers of an operand or result that belong to a run */
static float *of_run(const Call *call, int number, int64_t run) {
    const XLA_FFI_Buffer *x = buffer(call->call, number);
    int64_t size = 1, place = 0;
    for (int64_t axis = call->axes; axis < x->rank; axis++) size *= x->dims[axis];
    for (int axis = call->axes - 1; axis >= 0; axis--) {
        if (x->dims[axis] > 1) place += run % call->runs[axis] * size;
        run /= call->runs[axis];
        size *= x->dims[axis];
    }
    return (float *)x->data + place;
}

/* The same, NULL if there is no such result */
static float *result_of_run(const Call *call, int number, int64_t run) {
    return number < call->call->args.size + call->call->rets.size ? of_run(call, number, run) : NULL;
}

static Net net_of_run(const Call *call, int64_t run) {
    return (Net){of_run(call, 0, run), of_run(call, 1, run), of_run(call, 2, run), of_run(call, 3, run)};
}

/* Rows [row][k] to lanes [k][row] */
static inline void to_lanes(const float *restrict rows, int width, int many, float (*restrict lanes)[LANES]) {
    for (int row = 0; row < many; row++)
        for (int k = 0; k < width; k++) lanes[k][row] = rows[row * width + k];
}

#ifdef LOG_PROB
/* net, fixed, observations [n][H][INPUTS], actions [n][H][ACTIONS], lengths [n] -> log-probabilities [n][H], activations [n][H][KEPT] if asked for */
XLA_FFI_Error *LOG_PROB(XLA_FFI_CallFrame *frame) {
    if (asked_for_version(frame)) return NULL;
    Call call = read_call(frame, 2);
    int64_t n = length(&call, 8, 0), H = length(&call, 8, 1);
    float values[1][LANES], in[OUTPUTS + ACTIONS][LANES] = {0};
    for (int64_t run = 0; run < call.count; run++) {
        Net net = net_of_run(&call, run);
        const float *fixed = of_run(&call, 4, run), *seen = of_run(&call, 5, run), *action = of_run(&call, 6, run);
        const int *lengths = (const int *)of_run(&call, 7, run);
        float *result = of_run(&call, 8, run), *kept = result_of_run(&call, 9, run);
        memset(result, 0, sizeof(float) * n * H);
        for (int64_t i = 0; i < n; i++)
            for (int64_t t = 0; t < lengths[i]; t += LANES) {
                int many = lengths[i] - t < LANES ? (int)(lengths[i] - t) : LANES;
                int64_t at = i * H + t;
                forward(net, seen + at * INPUTS, many, kept ? kept + at * KEPT : NULL, in);
                to_lanes(action + at * ACTIONS, ACTIONS, many, in + OUTPUTS);
                log_prob(fixed, in, values, many);
                memcpy(result + at, values[0], sizeof(float) * many);
            }
    }
    return NULL;
}

/* net, fixed, observations, actions, lengths, coefficients [n][H], activations if there are any -> sums [INPUTS + 1 + OUTPUTS][UNITS], [OUTPUTS + OTHERS] */
XLA_FFI_Error *SCORE_SUM(XLA_FFI_CallFrame *frame) {
    if (asked_for_version(frame)) return NULL;
    Call call = read_call(frame, 2);
    int results = (int)frame->args.size, given = results > 9;
    int64_t n = length(&call, 8, 0), H = length(&call, 8, 1);
    float computed[LANES][KEPT], slopes[OTHERS + OUTPUTS][LANES], in[OUTPUTS + ACTIONS][LANES] = {0};
    for (int64_t run = 0; run < call.count; run++) {
        Net net = net_of_run(&call, run);
        const float *fixed = of_run(&call, 4, run), *seen = of_run(&call, 5, run), *action = of_run(&call, 6, run);
        const int *lengths = (const int *)of_run(&call, 7, run);
        const float *coefficient = of_run(&call, 8, run), *kept = given ? of_run(&call, 9, run) : NULL;
        float sums[INPUTS + 1 + OUTPUTS][UNITS] = {0}, single[OTHERS + OUTPUTS] = {0};
        for (int64_t i = 0; i < n; i++)
            for (int64_t t = 0; t < lengths[i]; t += LANES) {
                int many = lengths[i] - t < LANES ? (int)(lengths[i] - t) : LANES;
                int64_t at = i * H + t;
                const float *hidden = given ? kept + at * KEPT : computed[0];
                if (!given) forward(net, seen + at * INPUTS, many, computed[0], in);
                else
                    for (int row = 0; row < many; row++)
                        for (int o = 0; o < OUTPUTS; o++) in[o][row] = hidden[row * KEPT + UNITS + o];
                to_lanes(action + at * ACTIONS, ACTIONS, many, in + OUTPUTS);
                slope(fixed, in, slopes, many);
                for (int k = 0; k < OTHERS + OUTPUTS; k++)
                    for (int row = 0; row < many; row++) single[k] += slopes[k][row] *= coefficient[at + row];
                backward(net, seen + at * INPUTS, many, hidden, slopes + OTHERS, sums);
            }
        memcpy(of_run(&call, results, run), sums, sizeof sums);
        float *narrow = of_run(&call, results + 1, run); /* those of the outputs first */
        memcpy(narrow, single + OTHERS, sizeof(float) * OUTPUTS);
        memcpy(narrow + OUTPUTS, single, sizeof(float) * OTHERS);
    }
    return NULL;
}
#endif

#ifdef ROLLOUT
/* net, fixed, noise [n][H][NOISE], states [n][STATE], first observations [n][INPUTS] ->
 * observations [n][H][INPUTS], actions [n][H][ACTIONS], rewards, masks, log-probabilities [n][H], activations [n][H][KEPT] if asked for */
XLA_FFI_Error *ROLLOUT(XLA_FFI_CallFrame *frame) {
    if (asked_for_version(frame)) return NULL;
    Call call = read_call(frame, 3);
    int64_t n = length(&call, 12, 0), H = length(&call, 12, 1);
    for (int64_t run = 0; run < call.count; run++) {
        Net net = net_of_run(&call, run);
        const float *fixed = of_run(&call, 4, run), *noise = of_run(&call, 5, run);
        const float *states = of_run(&call, 6, run), *first = of_run(&call, 7, run);
        float *observations = of_run(&call, 8, run), *actions = of_run(&call, 9, run);
        float *rewards = of_run(&call, 10, run), *masks = of_run(&call, 11, run), *logs = of_run(&call, 12, run);
        float *kept = result_of_run(&call, 13, run), hidden[LANES][KEPT];
        for (int64_t from = 0; from < n; from += LANES) {
            int many = n - from < LANES ? (int)(n - from) : LANES, left = many;
            float now[STATE + ACTIONS][LANES] = {0}, ahead[STATE + INPUTS + 2][LANES], seen[LANES][INPUTS];
            float in[OUTPUTS + (NOISE > ACTIONS ? NOISE : ACTIONS)][LANES] = {0}, value[1][LANES];
            int alive[LANES];
            for (int lane = 0; lane < many; lane++) alive[lane] = 1;
            to_lanes(states + from * STATE, STATE, many, now);
            memcpy(seen, first + from * INPUTS, sizeof(float) * many * INPUTS);
            int64_t t = 0;
            for (; t < H && left; t++) {
                forward(net, seen[0], many, kept ? hidden[0] : NULL, in);
                for (int lane = 0; lane < many; lane++) {
                    int64_t at = (from + lane) * H + t;
                    for (int k = 0; k < INPUTS; k++) observations[at * INPUTS + k] = seen[lane][k];
                    for (int k = 0; k < NOISE; k++) in[OUTPUTS + k][lane] = noise[at * NOISE + k];
                }
                if (kept)
                    for (int lane = 0; lane < many; lane++)
                        memcpy(kept + ((from + lane) * H + t) * KEPT, hidden[lane], sizeof hidden[lane]);
                act(fixed, in, now + STATE, many);
                memcpy(in + OUTPUTS, now + STATE, sizeof(float) * ACTIONS * LANES);
                log_prob(fixed, in, value, many);
                env_step(NULL, now, ahead, many);
                left = 0;
                for (int lane = 0; lane < many; lane++) {
                    int64_t at = (from + lane) * H + t;
                    int live = alive[lane];
                    for (int k = 0; k < ACTIONS; k++) actions[at * ACTIONS + k] = now[STATE + k][lane];
                    rewards[at] = live ? ahead[STATE + INPUTS][lane] : 0.0f;
                    masks[at] = live;
                    logs[at] = live ? value[0][lane] : 0.0f;
                    alive[lane] = live && !bits(ahead[STATE + INPUTS + 1][lane]);
                    left += alive[lane];
                    if (!alive[lane]) continue; /* a finished episode stays in its last state */
                    for (int k = 0; k < STATE; k++) now[k][lane] = ahead[k][lane];
                    for (int k = 0; k < INPUTS; k++) seen[lane][k] = ahead[STATE + k][lane];
                }
            }
            for (int lane = 0; lane < many; lane++) {
                int64_t at = (from + lane) * H + t, rest = H - t;
                memset(observations + at * INPUTS, 0, sizeof(float) * rest * INPUTS);
                memset(actions + at * ACTIONS, 0, sizeof(float) * rest * ACTIONS);
                memset(rewards + at, 0, sizeof(float) * rest);
                memset(masks + at, 0, sizeof(float) * rest);
                memset(logs + at, 0, sizeof(float) * rest);
            }
        }
    }
    return NULL;
}
#endif
