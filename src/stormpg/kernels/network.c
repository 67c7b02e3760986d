/* A network with one hidden layer of tanh units on many rows, forward and backward, and the arrays that XLA passes.
 *
 * `cpu.py` writes the sizes below before this text. A vector holds 16 hidden units. Their weights stay in registers while up to
 * LANES rows pass by: steps of a trajectory, or trajectories of a rollout, which hide how long each operation takes. The
 * activations of these rows stay in the cache for the backward pass, whose sums are kept in registers too.
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
