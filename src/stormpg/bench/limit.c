/* What hand-written C can do: GPOMDP and STORM-PG on Cart-Pole, the paper's 4-64-1 policy, one seed on one core.
 *
 *     limit check FILE            read parameters, starts and noise; write both gradients of one batch (see limit.py)
 *     limit run storm|gpomdp B H SECONDS     train, and print environment steps a second
 *     limit peak                  print how many thousand million multiplications and additions a core does in a second
 *
 * The hidden layer is the vector: 64 floats are four registers of AVX-512. The second policy's log-probabilities are
 * computed as the trajectory runs, activations are kept for the backward pass, and everything stays in the caches.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define I 4
#define U 64
#define SIZE (I * U + U + U + 1) /* weights in, biases, weights out, bias */
#define MOST 1024 /* trajectories of a batch */
#define LONG 100

typedef struct { float in[I][U], bias[U], out[U], last; } Net;

static float seen[MOST][LONG][I], act[MOST][LONG], reward[MOST][LONG], ratio[MOST][LONG];
static float here[MOST][LONG][U], there[MOST][LONG][U]; /* activations under both policies */
static float mean_here[MOST][LONG], mean_there[MOST][LONG];
static int length[MOST];

static inline float tanh_of(float x) { /* the rational approximation that XLA uses too: no call, no branch */
    x = fminf(fmaxf(x, -7.90531110763549805f), 7.90531110763549805f);
    float q = x * x;
    float above = -2.76076847742355e-16f;
    above = above * q + 2.00018790482477e-13f;
    above = above * q - 8.60467152213735e-11f;
    above = above * q + 5.12229709037114e-08f;
    above = above * q + 1.48572235717979e-05f;
    above = above * q + 6.37261928875436e-04f;
    above = above * q + 4.89352455891786e-03f;
    float below = 1.19825839466702e-06f;
    below = below * q + 1.18534705686654e-04f;
    below = below * q + 2.26843463243900e-03f;
    below = below * q + 4.89352518554385e-03f;
    return x * above / below;
}

static inline float forward(const Net *n, const float *s, float *restrict h) {
    float total = n->last;
    for (int k = 0; k < U; k++) {
        float x = n->bias[k] + s[0] * n->in[0][k] + s[1] * n->in[1][k] + s[2] * n->in[2][k] + s[3] * n->in[3][k];
        h[k] = tanh_of(x);
    }
    for (int k = 0; k < U; k++) total += h[k] * n->out[k];
    return total;
}

static int push(float *s, float action) { /* Gymnasium's CartPole-v1; whether it has fallen */
    float force = 10.0f * fminf(fmaxf(action, -1.0f), 1.0f), c = cosf(s[2]), n = sinf(s[2]);
    float thrust = (force + 0.05f * s[3] * s[3] * n) / 1.1f;
    float alpha = (9.8f * n - c * thrust) / (0.5f * (4.0f / 3.0f - 0.1f * c * c / 1.1f));
    float a = thrust - 0.05f * alpha * c / 1.1f;
    s[0] += 0.02f * s[1]; s[1] += 0.02f * a; s[2] += 0.02f * s[3]; s[3] += 0.02f * alpha;
    return fabsf(s[0]) > 2.4f || fabsf(s[2]) > 0.20943951f;
}

static void rollout(const Net *n, const Net *ref, int i, float *s, const float *noise, int H) {
    int t = 0;
    for (; t < H; t++) {
        memcpy(seen[i][t], s, sizeof seen[i][t]);
        mean_here[i][t] = forward(n, s, here[i][t]);
        act[i][t] = mean_here[i][t] + noise[t];
        if (ref) {
            mean_there[i][t] = forward(ref, s, there[i][t]);
            float z = act[i][t] - mean_there[i][t];
            ratio[i][t] = 0.5f * noise[t] * noise[t] - 0.5f * z * z;
        }
        reward[i][t] = 1.0f;
        if (push(s, act[i][t])) { t++; break; }
    }
    length[i] = t;
    for (; t < H; t++) reward[i][t] = ratio[i][t] = 0.0f;
}

/* mean_i Σ_t c_t ∇log π(a_t|s_t), with c from the rewards, the weights (1 where there are none) and the baseline */
static void gradient(const Net *n, int B, int H, float gamma, int weighted, Net *g) {
    static float sum[LONG], discount[LONG];
    memset(g, 0, sizeof *g);
    discount[0] = 1.0f;
    for (int t = 1; t < H; t++) discount[t] = discount[t - 1] * gamma;
    for (int t = 0; t < H; t++) {
        sum[t] = 0.0f;
        for (int i = 0; i < B; i++) sum[t] += reward[i][t];
    }
    for (int i = 0; i < B; i++) {
        static float c[LONG];
        float total = 0.0f, w = 1.0f;
        for (int t = 0; t < H; t++) {
            if (weighted) w *= expf(ratio[i][t]);
            float others = B > 1 ? (sum[t] - reward[i][t]) / (B - 1) : 0.0f;
            c[t] = w * discount[t] * (reward[i][t] - others);
        }
        for (int t = H - 1; t >= 0; t--) c[t] = total += c[t];
        for (int t = 0; t < length[i]; t++) {
            const float *h = weighted ? there[i][t] : here[i][t], *s = seen[i][t];
            float pull = c[t] * (act[i][t] - (weighted ? mean_there[i][t] : mean_here[i][t])) / B;
            g->last += pull;
            for (int k = 0; k < U; k++) {
                float back = pull * n->out[k] * (1.0f - h[k] * h[k]);
                g->out[k] += pull * h[k];
                g->bias[k] += back;
                g->in[0][k] += s[0] * back; g->in[1][k] += s[1] * back;
                g->in[2][k] += s[2] * back; g->in[3][k] += s[3] * back;
            }
        }
    }
}

static unsigned long long word = 88172645463325252ull;
static inline float uniform(void) { /* (0, 1] */
    word ^= word << 13; word ^= word >> 7; word ^= word << 17;
    return ((word >> 40) + 1) * (1.0f / 16777216.0f);
}
static void normals(float *restrict x, int count) { /* Box and Muller's, a vector at a time */
    static float first[LONG], second[LONG];
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
    static float noise[LONG], mu[SIZE], nu[SIZE];
    float *p = (float *)&n, *q = (float *)&g, *here_ = (float *)&d, *there_ = (float *)&dref;
    for (int k = 0; k < I * U; k++) p[k] = (2.0f * uniform() - 1.0f) * sqrtf(6.0f / (I + U));
    for (int k = 0; k < U; k++) n.out[k] = (2.0f * uniform() - 1.0f) * sqrtf(6.0f / (U + 1));
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    double taken = 0.0, slots = 0.0, live = 0.0;
    float b1 = 1.0f, b2 = 1.0f;
    for (long t = 0; taken < seconds; t++) {
        for (int i = 0; i < B; i++) {
            float s[I];
            for (int k = 0; k < I; k++) s[k] = 0.1f * uniform() - 0.05f;
            normals(noise, H);
            rollout(&n, storm && t ? &old : NULL, i, s, noise, H);
            live += length[i];
        }
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
    static float starts[MOST][I], noise[MOST][LONG];
    if (fread(starts, 4, I * B, f) != (size_t)(I * B)) return 1;
    for (int i = 0; i < B; i++) if (fread(noise[i], 4, H, f) != (size_t)H) return 1;
    fclose(f);
    for (int i = 0; i < B; i++) rollout(&n, &ref, i, starts[i], noise[i], H);
    gradient(&n, B, H, head[2], 0, &d);
    gradient(&ref, B, H, head[2], 1, &dref);
    fwrite(&d, 4, SIZE, stdout);
    fwrite(&dref, 4, SIZE, stdout);
    return 0;
}

static double peak(void) { /* independent multiply-adds in registers, many enough to hide how long each one takes */
    enum { WIDTH = 16, CHAINS = 12 };
    typedef float Vector __attribute__((vector_size(4 * WIDTH)));
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
