/* What hand-written C can do: GPOMDP and STORM-PG on Cart-Pole, the paper's 4-64-1 policy, one seed on one core.
 *
 *     limit check FILE            read parameters, starts and noise; write both gradients of one batch (see limit.py)
 *     limit run storm|gpomdp B H SECONDS     train, and print environment steps a second
 *     limit peak                  print how many thousand million multiplications and additions a core does in a second
 *
 * A vector holds 16 hidden units. Their weights stay in registers while all trajectories of the batch pass by, so that the
 * trajectories hide how long each operation takes. The activations of a step under both policies are computed together and
 * kept for the backward pass, whose sums stay in registers too. Everything fits into the caches.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define I 4
#define U 64
#define WIDTH 16
#define PARTS (U / WIDTH)
#define SIZE (I * U + U + U + 1) /* weights in, biases, weights out, bias */
#define MOST 1024 /* trajectories of a batch */
#define LONG 100

typedef struct { float in[I][U], bias[U], out[U], last; } Net;
typedef float Vector __attribute__((vector_size(4 * WIDTH), aligned(4)));

/* What is kept of a batch, indexed by t · B + i */
static float seen[MOST * LONG][I], act[MOST * LONG], reward[MOST * LONG], ratio[MOST * LONG];
static float here[MOST * LONG][U], there[MOST * LONG][U]; /* activations under both policies */
static float mean_here[MOST * LONG], mean_there[MOST * LONG];
static float now[I][MOST]; /* the states of the trajectories */
static int alive[MOST], length[MOST];

static inline Vector load(const float *x) { return *(const Vector *)x; }
static inline void store(float *x, Vector v) { *(Vector *)x = v; }

static inline Vector tanh_of(Vector x) { /* the rational approximation that XLA uses too: no call, no branch */
    const float most = 7.90531110763549805f;
    for (int k = 0; k < WIDTH; k++) x[k] = fminf(fmaxf(x[k], -most), most);
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
    return x * above / below;
}

/* The activations and means of the living trajectories at time t */
static void forward(const Net *restrict n, int B, int t, float (*restrict kept)[U], float *restrict mean) {
    Vector total[16];
    for (int first = 0; first < B; first += 16) {
        int many = B - first < 16 ? B - first : 16;
        for (int i = 0; i < many; i++) total[i] = (Vector){0};
        for (int part = 0; part < U; part += WIDTH) {
            Vector bias = load(n->bias + part), out = load(n->out + part);
            Vector w0 = load(n->in[0] + part), w1 = load(n->in[1] + part);
            Vector w2 = load(n->in[2] + part), w3 = load(n->in[3] + part);
            for (int i = 0; i < many; i++) {
                int at = t * B + first + i;
                const float *s = seen[at];
                Vector h = tanh_of(bias + s[0] * w0 + s[1] * w1 + s[2] * w2 + s[3] * w3);
                store(kept[at] + part, h);
                total[i] += h * out;
            }
        }
        for (int i = 0; i < many; i++) {
            float sum = n->last;
            for (int k = 0; k < WIDTH; k++) sum += total[i][k];
            mean[t * B + first + i] = sum;
        }
    }
}

static void push(int B, const float *restrict action) { /* Gymnasium's CartPole-v1, and which episodes end */
    for (int i = 0; i < B; i++) {
        float x = now[0][i], v = now[1][i], angle = now[2][i], spin = now[3][i];
        float force = 10.0f * fminf(fmaxf(action[i], -1.0f), 1.0f), c = cosf(angle), n = sinf(angle);
        float thrust = (force + 0.05f * spin * spin * n) / 1.1f;
        float alpha = (9.8f * n - c * thrust) / (0.5f * (4.0f / 3.0f - 0.1f * c * c / 1.1f));
        float a = thrust - 0.05f * alpha * c / 1.1f;
        now[0][i] = x += 0.02f * v; now[1][i] = v + 0.02f * a;
        now[2][i] = angle += 0.02f * spin; now[3][i] = spin + 0.02f * alpha;
        alive[i] &= !((fabsf(x) > 2.4f) | (fabsf(angle) > 0.20943951f));
    }
}

/* A batch from the states in `now`, with noise [t][i]. Trajectories that have ended are computed on, and not counted. */
static void rollout(const Net *n, const Net *ref, int B, const float *noise, int H) {
    int t = 0, left = B;
    for (int i = 0; i < B; i++) alive[i] = 1, length[i] = 0;
    for (; t < H && left; t++) {
        int from = t * B;
        for (int i = 0; i < B; i++)
            for (int k = 0; k < I; k++) seen[from + i][k] = now[k][i];
        forward(n, B, t, here, mean_here);
        if (ref) forward(ref, B, t, there, mean_there);
        left = 0;
        for (int i = 0; i < B; i++) {
            float e = noise[from + i], a = act[from + i] = mean_here[from + i] + e;
            float z = ref ? a - mean_there[from + i] : e;
            ratio[from + i] = alive[i] ? 0.5f * (e * e - z * z) : 0.0f;
            reward[from + i] = alive[i];
            length[i] += alive[i];
        }
        push(B, act + from);
        for (int i = 0; i < B; i++) left += alive[i];
    }
    for (int at = t * B; at < H * B; at++) reward[at] = ratio[at] = 0.0f;
}

/* mean_i Σ_t c_t ∇log π(a_t|s_t), with c from the rewards, the weights (1 where there are none) and the baseline */
static void gradient(const Net *n, int B, int H, float gamma, int weighted, Net *g) {
    static float pull[MOST * LONG], sum[MOST], w[MOST];
    const float (*kept)[U] = weighted ? there : here, *mean = weighted ? mean_there : mean_here;
    int longest = 0;
    float discount = 1.0f, last = 0.0f;
    for (int i = 0; i < B; i++) longest = length[i] > longest ? length[i] : longest, w[i] = 1.0f, sum[i] = 0.0f;
    for (int t = 0; t < longest; t++, discount *= gamma) {
        float all = 0.0f;
        for (int i = 0; i < B; i++) all += reward[t * B + i];
        for (int i = 0; i < B; i++) {
            int at = t * B + i;
            if (weighted) w[i] *= expf(ratio[at]);
            float others = B > 1 ? (all - reward[at]) / (B - 1) : 0.0f;
            pull[at] = w[i] * discount * (reward[at] - others);
        }
    }
    for (int t = longest - 1; t >= 0; t--)
        for (int i = 0; i < B; i++) {
            int at = t * B + i;
            sum[i] += pull[at];
            pull[at] = t < length[i] ? sum[i] * (act[at] - mean[at]) / B : 0.0f;
            last += pull[at];
        }
    for (int part = 0; part < U; part += WIDTH) {
        Vector out = load(n->out + part), g_out = {0}, g_bias = {0}, g0 = {0}, g1 = {0}, g2 = {0}, g3 = {0};
        for (int at = 0; at < longest * B; at++) {
            const float *s = seen[at];
            Vector h = load(kept[at] + part), ph = pull[at] * h;
            g_out += ph;
            Vector back = pull[at] - ph * h; /* times the weight out, after the sums */
            g_bias += back;
            g0 += s[0] * back; g1 += s[1] * back; g2 += s[2] * back; g3 += s[3] * back;
        }
        store(g->out + part, g_out);
        store(g->bias + part, out * g_bias);
        store(g->in[0] + part, out * g0); store(g->in[1] + part, out * g1);
        store(g->in[2] + part, out * g2); store(g->in[3] + part, out * g3);
    }
    g->last = last;
}

static unsigned long long word = 88172645463325252ull;
static inline float uniform(void) { /* (0, 1] */
    word ^= word << 13; word ^= word >> 7; word ^= word << 17;
    return ((word >> 40) + 1) * (1.0f / 16777216.0f);
}
static void normals(float *restrict x, int count) { /* Box and Muller's, a vector at a time */
    static float first[MOST * LONG], second[MOST * LONG];
    int half = (count + 1) / 2;
    for (int i = 0; i < half; i++) { first[i] = uniform(); second[i] = uniform(); }
    for (int i = 0; i < half; i++) {
        float r = sqrtf(-2.0f * logf(first[i]));
        x[i] = r * cosf(6.2831853f * second[i]);
        first[i] = r * sinf(6.2831853f * second[i]);
    }
    for (int i = half; i < count; i++) x[i] = first[i - half];
}

static void run(int storm, int B, int H, double seconds) {
    static Net n, old, d, dref, g;
    static float noise[MOST * LONG], mu[SIZE], nu[SIZE];
    float *p = (float *)&n, *q = (float *)&g, *here_ = (float *)&d, *there_ = (float *)&dref;
    for (int k = 0; k < I * U; k++) p[k] = (2.0f * uniform() - 1.0f) * sqrtf(6.0f / (I + U));
    for (int k = 0; k < U; k++) n.out[k] = (2.0f * uniform() - 1.0f) * sqrtf(6.0f / (U + 1));
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    double taken = 0.0, slots = 0.0, live = 0.0;
    float b1 = 1.0f, b2 = 1.0f;
    for (long t = 0; taken < seconds; t++) {
        for (int k = 0; k < I; k++)
            for (int i = 0; i < B; i++) now[k][i] = 0.1f * uniform() - 0.05f;
        normals(noise, B * H);
        rollout(&n, storm && t ? &old : NULL, B, noise, H);
        for (int i = 0; i < B; i++) live += length[i];
        gradient(&n, B, H, 0.99f, 0, &d);
        if (storm && t) gradient(&old, B, H, 0.99f, 1, &dref);
        old = n;
        b1 *= 0.9f; b2 *= 0.999f;
        for (int k = 0; k < SIZE; k++) { /* α = 0.9, Adam with η = 0.01 */
            q[k] = storm && t ? here_[k] + 0.1f * (q[k] - there_[k]) : here_[k];
            mu[k] = 0.9f * mu[k] + 0.1f * q[k];
            nu[k] = 0.999f * nu[k] + 0.001f * q[k] * q[k];
            p[k] += 0.01f * (mu[k] / (1.0f - b1)) / (sqrtf(nu[k] / (1.0f - b2)) + 1e-8f);
        }
        slots += (double)B * H;
        clock_gettime(CLOCK_MONOTONIC, &b);
        taken = (b.tv_sec - a.tv_sec) + 1e-9 * (b.tv_nsec - a.tv_nsec);
    }
    printf("%.6g %.6g\n", slots / taken, live / taken);
}

static int check(const char *name) { /* header B, H, γ; then two networks, starts [B][4], noise [B][H] */
    FILE *f = fopen(name, "rb");
    float head[3];
    static Net n, ref, d, dref;
    if (!f || fread(head, 4, 3, f) != 3 || fread(&n, 4, SIZE, f) != SIZE || fread(&ref, 4, SIZE, f) != SIZE) return 1;
    int B = head[0], H = head[1];
    static float noise[MOST * LONG];
    for (int i = 0; i < B; i++)
        for (int k = 0; k < I; k++) if (fread(&now[k][i], 4, 1, f) != 1) return 1;
    for (int i = 0; i < B; i++)
        for (int t = 0; t < H; t++) if (fread(&noise[t * B + i], 4, 1, f) != 1) return 1;
    fclose(f);
    rollout(&n, &ref, B, noise, H);
    gradient(&n, B, H, head[2], 0, &d);
    gradient(&ref, B, H, head[2], 1, &dref);
    fwrite(&d, 4, SIZE, stdout);
    fwrite(&dref, 4, SIZE, stdout);
    return 0;
}

static double peak(void) { /* independent multiply-adds in registers, many enough to hide how long each one takes */
    enum { CHAINS = 12 };
    Vector x[CHAINS], a, b;
    for (int k = 0; k < WIDTH; k++) a[k] = 0.999999f, b[k] = 1e-6f;
    for (int c = 0; c < CHAINS; c++) for (int k = 0; k < WIDTH; k++) x[c][k] = c + k;
    double best = 0.0;
    for (int attempt = 0; attempt < 5; attempt++) {
        struct timespec from, to;
        const long rounds = 10000000;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (long r = 0; r < rounds; r++)
            for (int c = 0; c < CHAINS; c++) x[c] = x[c] * a + b;
        clock_gettime(CLOCK_MONOTONIC, &to);
        double taken = (to.tv_sec - from.tv_sec) + 1e-9 * (to.tv_nsec - from.tv_nsec);
        double rate = 2e-9 * rounds * CHAINS * WIDTH / taken;
        if (rate > best) best = rate;
    }
    volatile float sink = 0.0f; /* so that the work is not left out */
    for (int c = 0; c < CHAINS; c++) for (int k = 0; k < WIDTH; k++) sink += x[c][k];
    return best;
}

int main(int count, char **words) {
    if (count == 2 && !strcmp(words[1], "peak")) return printf("%.6g\n", peak()) < 0;
    if (count == 3 && !strcmp(words[1], "check")) return check(words[2]);
    if (count == 6 && !strcmp(words[1], "run")) {
        int B = atoi(words[3]), H = atoi(words[4]);
        if (B > MOST || H > LONG) return 1;
        run(!strcmp(words[2], "storm"), B, H, atof(words[5]));
        return 0;
    }
    fprintf(stderr, "limit check FILE | limit run storm|gpomdp B H SECONDS | limit peak\n");
    return 2;
}
