/* A policy on a network: rollouts, log-probabilities, and weighted sums of scores.
 *
 * `cpu.py` writes the functions act, log_prob, slope and env_step before this text, which are those of the policy and of the
 * environment in C (`c_code.py`).
 */
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
